"""Pictures of a report as SVG: what lies in HBM, and the roofline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from ..utilities._html import svg
from ._model import Findings, MemoryFigures
from ._render import quantity

_WIDTH = 960
_BAR_TOP, _BAR_HEIGHT = 22, 34
_LEFT, _TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 96, 16, 820, 300

PARTS = (
    ("parameters", "parameters"),
    ("optimizer", "optimizer state"),
    ("other", "other state"),
    ("batch", "batch"),
    ("temporaries", "temporaries"),
    ("rest", "padding, results, program"),
)
"""Class and name of each part of the bar, from left to right."""


def memory_bar(memory: MemoryFigures) -> str:
    """Bar of the contents of HBM at a step's peak, against what there is."""
    rest = memory.padding + memory.outputs + memory.code
    sizes = (memory.parameters, memory.optimizer_state, memory.other_state, memory.batch, memory.temporaries, rest)
    scale = _WIDTH / max(memory.total, memory.capacity)
    shapes, x = [], 0.0
    for (kind, name), size in zip(PARTS, sizes, strict=True):
        place = f'x="{x:.2f}" y="{_BAR_TOP}" width="{size * scale:.2f}" height="{_BAR_HEIGHT}"'
        shapes.append(f'<rect {place} class="{kind}"><title>{name}: {quantity(size, "bytes")}</title></rect>')
        x += size * scale
    edge = memory.capacity * scale
    if memory.free > 0:
        place = f'x="{x:.2f}" y="{_BAR_TOP}" width="{edge - x:.2f}" height="{_BAR_HEIGHT}"'
        shapes.append(f'<rect {place} class="free"><title>free: {quantity(memory.free, "bytes")}</title></rect>')
    bottom = _BAR_TOP + _BAR_HEIGHT
    shapes.append(f'<line x1="{edge:.2f}" x2="{edge:.2f}" y1="{_BAR_TOP - 6}" y2="{bottom + 6}" class="limit"/>')
    has, needs = quantity(memory.capacity, "bytes"), quantity(memory.total, "bytes")
    shapes.append(f'<text x="{edge - 4:.2f}" y="14" text-anchor="end" class="dim">capacity {has}</text>')
    shapes.append(f'<text x="4" y="14">{needs}, {memory.percent:.1f}%</text>')
    return svg(_WIDTH, bottom + 10, shapes, f"HBM of a core: {needs} of {has}")


@dataclass(frozen=True)
class _Point:
    """Something that computes: FLOP per byte, FLOP/s, and how it is drawn."""

    name: str
    intensity: float
    rate: float
    kind: str
    radius: float


def roofline(report: Findings) -> str:
    """FLOP/s over FLOP per byte of HBM, both logarithmic: the step and its longest products under the chip's roof.

    The roof is the lower one of the peak and bandwidth times intensity (Williams et al., "Roofline: an insightful visual
    performance model", CACM 52(4), 2009). Operations without products, and those that touch no HBM, have no place in it.
    """
    assert report.time is not None
    assert report.work is not None
    chip, points = report.slice, _points(report)
    ridge = chip.peak_flops / chip.hbm_bandwidth
    low_x = math.floor(min(math.log10(ridge) - 1, *(math.log10(p.intensity) - 0.1 for p in points)))
    high_x = math.ceil(max(math.log10(ridge) + 0.5, *(math.log10(p.intensity) for p in points)))
    high_y = math.ceil(math.log10(chip.peak_flops))
    low_y = math.floor(min(math.log10(10**low_x * chip.hbm_bandwidth), *(math.log10(p.rate) - 0.1 for p in points)))
    axes = _Axes(low_x, max(high_x, low_x + 1), low_y, max(high_y, low_y + 1))
    shapes = axes.grid()
    roof = [
        (10.0**axes.low_x, 10.0**axes.low_x * chip.hbm_bandwidth),
        (ridge, chip.peak_flops),
        (10.0**axes.high_x, chip.peak_flops),
    ]
    path = " ".join(f"{axes.x(a):.1f},{axes.y(b):.1f}" for a, b in roof if a <= 10.0**axes.high_x)
    shapes.append(f'<polyline points="{path}" class="roof"/>')
    shapes.append(
        f'<text x="{axes.x(ridge):.1f}" y="{axes.y(chip.peak_flops) - 5:.1f}" text-anchor="middle" class="dim">'
        f"{quantity(chip.peak_flops, 'FLOP/s')}, from {ridge:.0f} FLOP/B on</text>"
    )
    for point in points:
        title = f"{point.name}: {point.intensity:.3g} FLOP/B, {quantity(point.rate, 'FLOP/s')}"
        place = f'cx="{axes.x(point.intensity):.1f}" cy="{axes.y(point.rate):.1f}" r="{point.radius:.1f}"'
        shapes.append(f'<circle {place} class="{point.kind}"><title>{escape(title)}</title></circle>')
    return svg(_WIDTH, _TOP + _PLOT_HEIGHT + 40, shapes, "roofline: FLOP/s over FLOP per byte of HBM")


@dataclass(frozen=True)
class _Axes:
    """Powers of ten at the edges of the plot."""

    low_x: int
    high_x: int
    low_y: int
    high_y: int

    def x(self, intensity: float) -> float:
        return _LEFT + _PLOT_WIDTH * (math.log10(intensity) - self.low_x) / (self.high_x - self.low_x)

    def y(self, rate: float) -> float:
        return _TOP + _PLOT_HEIGHT * (self.high_y - math.log10(rate)) / (self.high_y - self.low_y)

    def grid(self) -> list[str]:
        shapes, bottom = [], _TOP + _PLOT_HEIGHT
        for power in range(self.low_x, self.high_x + 1):
            x = self.x(10.0**power)
            shapes.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}" class="axis"/>')
            shapes.append(f'<text x="{x:.1f}" y="{bottom + 15}" text-anchor="middle" class="dim">{10.0**power:g}</text>')
        for power in range(self.low_y, self.high_y + 1):
            y, label = self.y(10.0**power), quantity(10.0**power, "FLOP/s")
            shapes.append(f'<line x1="{_LEFT}" x2="{_LEFT + _PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="axis"/>')
            shapes.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="dim">{label}</text>')
        shapes.append(
            f'<text x="{_LEFT + _PLOT_WIDTH}" y="{bottom + 32}" text-anchor="end" class="dim">FLOP per byte of HBM</text>'
        )
        return shapes


def _points(report: Findings) -> list[_Point]:
    time, work, chip = report.time, report.work, report.slice
    assert time is not None
    assert work is not None
    ridge = chip.peak_flops / chip.hbm_bandwidth
    points = []
    for one in report.operations:
        if one.flops and one.bytes and one.cycles:
            intensity = one.flops / one.bytes
            kind = "memory" if intensity < ridge else "compute"
            name = " ".join(filter(None, (one.name, one.module, f"{one.share:.1%} of the cycles")))
            rate = one.flops / (one.cycles / chip.clock_hz)
            points.append(_Point(name, intensity, rate, kind, 4 + 10 * math.sqrt(one.share)))
    flops = work.flops + work.kernel_flops
    if flops and work.bytes_moved:
        points.append(_Point("the whole step", flops / work.bytes_moved, flops / time.step, "step", 8))
    return points
