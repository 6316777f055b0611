"""The timeline of steps as SVG, without scripts or anything to load."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from ..utilities._html import svg
from ._recorder import Step

_WIDTH, _LEFT = 960, 118
_PLOT = _WIDTH - _LEFT - 40
_ROW = 54
_LANE = 26
_BARS = 160
_SMALLEST = 1e-6
_UNITS = {3: "ms", 6: "s"}

_PARTS: tuple[tuple[str, str, Callable[[Step], float]], ...] = (
    ("wait", "waiting for data", lambda step: step.wait),
    ("compile", "compiling", lambda step: step.compile),
    ("execute", "executing", lambda step: step.execute),
    ("host", "host work", lambda step: step.host),
)


def milliseconds(seconds: float) -> str:
    """A duration for people: three digits, in s, ms or us."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def per_step(steps: Sequence[Step]) -> str:
    """Four rows of bars over the step's number, logarithmic from 1 us up; many steps share a bar as their mean."""
    size = -(-len(steps) // _BARS)
    groups = [steps[i : i + size] for i in range(0, len(steps), size)]
    width = _PLOT / max(len(groups), 1)
    rows = [[sum(map(seconds_of, group)) / len(group) for group in groups] for _, _, seconds_of in _PARTS]
    decades = max(math.log10(max(max(values, default=0.0) for values in rows) / _SMALLEST + 1), 1.0)
    shapes = []
    for row, ((kind, label, _), values) in enumerate(zip(_PARTS, rows, strict=True)):
        top, base = max(values, default=0.0), (row + 1) * _ROW - 8
        for power in range(3, math.ceil(decades), 3):  # lines at 1 ms and 1 s
            y = base - (_ROW - 16) * power / decades
            shapes.append(f'<line x1="{_LEFT}" x2="{_LEFT + _PLOT}" y1="{y:.1f}" y2="{y:.1f}" class="axis"/>')
            shapes.append(f'<text x="{_LEFT + _PLOT + 4}" y="{y + 4:.1f}" class="dim">1 {_UNITS[power]}</text>')
        shapes.append(f'<text x="{_LEFT - 8}" y="{base - 22}" text-anchor="end">{label}</text>')
        shapes.append(f'<text x="{_LEFT - 8}" y="{base - 8}" text-anchor="end" class="dim">max {milliseconds(top)}</text>')
        shapes.append(f'<line x1="{_LEFT}" x2="{_LEFT + _PLOT}" y1="{base}" y2="{base}" class="axis"/>')
        for index, (group, value) in enumerate(zip(groups, values, strict=True)):
            height = (_ROW - 16) * math.log10(max(value / _SMALLEST, 1.0)) / decades
            if not height:
                continue
            steps_named = f"step {group[0].number}" if len(group) == 1 else f"steps {group[0].number} to {group[-1].number}"
            x, y = _LEFT + index * width, base - height
            bar = f'x="{x:.2f}" y="{y:.2f}" width="{max(width * 0.9, 0.5):.2f}" height="{height:.2f}"'
            shapes.append(f'<rect {bar} class="{kind}"><title>{steps_named}: {label} {milliseconds(value)}</title></rect>')
    height = len(_PARTS) * _ROW + 14
    first, last = (steps[0].number, steps[-1].number) if steps else (0, 0)
    shapes.append(f'<text x="{_LEFT}" y="{height - 2}" class="dim">step {first}</text>')
    shapes.append(f'<text x="{_LEFT + _PLOT}" y="{height - 2}" text-anchor="end" class="dim">step {last}</text>')
    return svg(_WIDTH, height, shapes, "what each step spent its time on")


def timeline(steps: Sequence[Step]) -> str:
    """Some neighbouring steps on a time axis: the host's lane above the devices' lane."""
    begin = min(step.wait_began for step in steps)
    end = max(max(step.done, (step.execute_began or 0.0) + step.execute) for step in steps)
    scale = _PLOT / max(end - begin, 1e-9)

    def box(lane: int, kind: str, began: float, seconds: float, text: str) -> str:
        x, width = _LEFT + (began - begin) * scale, max(seconds * scale, 0.4)
        title = f"{text}: {milliseconds(seconds)}"
        place = f'x="{x:.2f}" y="{4 + lane * (_LANE + 8)}" width="{width:.2f}" height="{_LANE}"'
        return f'<rect {place} class="{kind}"><title>{escape(title)}</title></rect>'

    shapes = []
    for lane, name in enumerate(("host", "devices")):
        shapes.append(f'<text x="{_LEFT - 8}" y="{4 + lane * (_LANE + 8) + 17}" text-anchor="end">{name}</text>')
    for step in steps:
        named = f"step {step.number}"
        got = step.wait_began + step.wait
        shapes.append(box(0, "idle", got, step.done - got, f"{named}, the call, or waiting for the devices"))
        shapes.append(box(0, "host", step.done - step.host, step.host, f"{named}, host work"))
        shapes.append(box(0, "wait", step.wait_began, step.wait, f"{named}, waiting for data"))
        if step.compile:
            shapes.append(box(0, "compile", step.call_began, step.compile, f"{named}, compiling ({step.cause[:200]})"))
        if step.execute_began is not None:
            shapes.append(box(1, "execute", step.execute_began, step.execute, f"{named}, executing"))
    height = 2 * (_LANE + 8) + 18
    shapes.append(f'<text x="{_LEFT}" y="{height - 3}" class="dim">{milliseconds(begin)} after the start</text>')
    shapes.append(
        f'<text x="{_LEFT + _PLOT}" y="{height - 3}" text-anchor="end" class="dim">+{milliseconds(end - begin)}</text>'
    )
    return svg(_WIDTH, height, shapes, f"timeline of the steps {steps[0].number} to {steps[-1].number}")
