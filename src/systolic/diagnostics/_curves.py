"""Curves as small SVG pictures that stand side by side, or below each other on a phone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from ..utilities._html import svg

_WIDTH, _HEIGHT = 440, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 14, 10, 26
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_DOTTED = 40
"""Curves of at most so many points have dots."""

Point = Sequence[float]
"""At, mean, smallest, largest."""

CURVES_STYLE = """
:root { --c0: #1f77c9; --c1: #c2410c; --c2: #15803d; --c3: #8250c8 }
@media (prefers-color-scheme: dark) { :root { --c0: #58a6ff; --c1: #f0883e; --c2: #4fc878; --c3: #bc8cff } }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(340px, 100%), 1fr)); gap: 4px 16px }
.chart h3 { font-size: 14px; margin: 8px 0 2px; overflow-wrap: anywhere }
.chart p { font-size: 12.5px; overflow-wrap: anywhere }
.chart svg { margin-bottom: 2px } .chart .key { margin-left: 0 } .chart p span.one { margin-right: 14px }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round } .band { stroke: none; fill-opacity: 0.16 }
.c0 { stroke: var(--c0); fill: var(--c0) } .c1 { stroke: var(--c1); fill: var(--c1) } .c2 { stroke: var(--c2); fill: var(--c2) }
.c3 { stroke: var(--c3); fill: var(--c3) } .line.c0, .line.c1, .line.c2, .line.c3 { fill: none }
.band.c0, .band.c1, .band.c2, .band.c3 { stroke: none }
"""

MOST_CURVES = 4
"""In one chart: so many colours can be told apart."""


@dataclass(frozen=True)
class Curve:
    """One line of a chart.

    Attributes:
        name: for the legend.
        points: at least one, by their first number.
        note: what the legend says behind the name.
    """

    name: str
    points: Sequence[Point]
    note: str = ""


def chart(title: str, curves: Sequence[Curve], x_name: str, text_of: Callable[[float], str], logarithmic: bool = False) -> str:
    """A chart with title and legend.

    Args:
        title: above it.
        curves: one to four.
        x_name: what the horizontal axis counts.
        text_of: writes a value of the vertical axis.
        logarithmic: whether the vertical axis is; values must be above 0 then.
    """
    axes = _Axes.around(curves, logarithmic)
    shapes = [*axes.grid(x_name, text_of)]
    for number, curve in enumerate(curves):
        shapes += _drawn(curve, number, axes, text_of)
    legend = "".join(
        f'<span class="one"><span class="key" style="background: var(--c{number})"></span>{escape(curve.name)} '
        f'<span class="dim">{escape(curve.note)}</span></span>'
        for number, curve in enumerate(curves)
    )
    label = f"{title}: {', '.join(curve.name for curve in curves)} over {x_name}"
    return f'<div class="chart"><h3>{escape(title)}</h3>{svg(_WIDTH, _HEIGHT, shapes, label)}<p>{legend}</p></div>'


def _drawn(curve: Curve, number: int, axes: _Axes, text_of: Callable[[float], str]) -> Iterator[str]:
    at = [axes.x(point[0]) for point in curve.points]
    means = [axes.y(point[1]) for point in curve.points]
    lows, highs = [axes.y(point[2]) for point in curve.points], [axes.y(point[3]) for point in curve.points]
    if len(at) > 1:
        if any(low - high > 1 for low, high in zip(lows, highs, strict=True)):
            around = [*zip(at, highs, strict=True), *reversed([*zip(at, lows, strict=True)])]
            yield f'<polygon points="{_path(around)}" class="band c{number}"/>'
        yield f'<polyline points="{_path(list(zip(at, means, strict=True)))}" class="line c{number}"/>'
    if len(at) <= _DOTTED:
        for x, y, point in zip(at, means, curve.points, strict=True):
            told = escape(f"{curve.name} at {point[0]:g}: {text_of(point[1])}")
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" class="c{number}"><title>{told}</title></circle>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


@dataclass(frozen=True)
class _Axes:
    """Ends of both axes; those of a logarithmic one are powers of ten."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float
    logarithmic: bool

    @classmethod
    def around(cls, curves: Sequence[Curve], logarithmic: bool) -> _Axes:
        points = [point for curve in curves for point in curve.points]
        low_x, high_x = min(p[0] for p in points), max(p[0] for p in points)
        low, high = min(p[2] for p in points), max(p[3] for p in points)
        if logarithmic:
            low, high = math.floor(math.log10(low)), math.ceil(math.log10(high))
            return cls(low_x, max(high_x, low_x + 1), low, max(high, low + 1), True)
        room = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
        return cls(low_x, max(high_x, low_x + 1), low - room if low < 0 or low > room else 0.0, high + room, False)

    def x(self, at: float) -> float:
        return _LEFT + _PLOT_WIDTH * (at - self.low_x) / (self.high_x - self.low_x)

    def y(self, value: float) -> float:
        value = math.log10(value) if self.logarithmic else value
        return _TOP + _PLOT_HEIGHT * (self.high_y - value) / (self.high_y - self.low_y)

    def grid(self, x_name: str, text_of: Callable[[float], str]) -> Iterator[str]:
        values = (
            [10.0**power for power in range(int(self.low_y), int(self.high_y) + 1)]
            if self.logarithmic
            else _ticks(self.low_y, self.high_y)
        )
        for value in values:
            y = self.y(value)
            yield f'<line x1="{_LEFT}" x2="{_LEFT + _PLOT_WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="axis"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" class="dim">{escape(text_of(value))}</text>'
        bottom = _HEIGHT - 9
        yield f'<text x="{_LEFT}" y="{bottom}" class="dim">{escape(x_name)} {_count(self.low_x)}</text>'
        yield f'<text x="{_LEFT + _PLOT_WIDTH}" y="{bottom}" text-anchor="end" class="dim">{_count(self.high_x)}</text>'


def _count(at: float) -> str:
    return f"{at:,.0f}" if at == int(at) or abs(at) >= 100 else f"{at:.3g}"


def _ticks(low: float, high: float) -> list[float]:
    """Three to six round values inside."""
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]
