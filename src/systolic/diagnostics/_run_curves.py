"""Charts of a run's report: logged values, durations of steps, memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ._curves import MOST_CURVES, Curve, Point, chart
from ._units import size, spoken

_MOST_CHARTS = 24
_SHORTEST = 1e-6
_STAGES = re.compile(r"^(train|training|val|valid|validation|test)[_/\-. ]|_(step|epoch)$")


def logged_curves(series: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Charts of logged values, those of one quantity (`train_loss`, `val_loss`) in one chart.

    Args:
        series: `ValuePoints.as_dict()` by name.

    Returns:
        The charts; the names for which there was no room; sentences on values that are in no chart.
    """
    groups: dict[str, list[Curve]] = {}
    for name, one in sorted(series.items()):
        if one["points"]:
            groups.setdefault(_quantity(name), []).append(Curve(name, one["points"], _last(one["points"])))
    parts = [
        (quantity, curves[begin : begin + MOST_CURVES])
        for quantity, curves in groups.items()
        for begin in range(0, len(curves), MOST_CURVES)
    ]
    charts = [chart(quantity, part, "step", _short) for quantity, part in parts[:_MOST_CHARTS]]
    left = [curve.name for _, part in parts[_MOST_CHARTS:] for curve in part]
    odd = [
        f"{one['not_finite']} values of {name} were not finite (nan, inf), the first at step {one['first_not_finite']:g}."
        for name, one in sorted(series.items())
        if one["not_finite"]
    ]
    return charts, left, odd


def _quantity(name: str) -> str:
    """A name without stage and interval: `train_loss_epoch` is a `loss`."""
    shorter = _STAGES.sub("", _STAGES.sub("", name))
    return shorter or name


def _last(points: Sequence[Point]) -> str:
    lowest, highest = min(point[2] for point in points), max(point[3] for point in points)
    return f"last {points[-1][1]:.4g}, from {lowest:.4g} to {highest:.4g}"


def _short(value: float) -> str:
    return f"{value:.4g}"


def step_curves(steps: dict[str, Any]) -> list[str]:
    """A chart for each stage: how long its steps took, and waited for data.

    Args:
        steps: `StepPoints.as_dict()` by stage.
    """
    charts = []
    for stage, one in steps.items():
        whole: list[Point] = []
        waits: list[Point] = []
        number = 0.0
        for count, seconds, longest, waited in one["points"]:
            number += count
            mean, wait = max(seconds / count, _SHORTEST), max(waited / count, _SHORTEST)
            whole.append((number, mean, mean, max(longest, mean)))
            waits.append((number, wait, wait, wait))
        curves = [Curve("step", whole, "band: to the longest"), Curve("of it waiting for data", waits)]
        charts.append(chart(f"Time of {stage} steps", curves, "step", spoken, logarithmic=True))
    return charts


def memory_curves(memory: dict[str, Any]) -> list[str]:
    """A chart of the devices' memory, and one of the process's; none of what is not known.

    Args:
        memory: `ValuePoints.as_dict()` by name.
    """
    curves = {name: Curve(name, one["points"], f"last {size(one['points'][-1][1])}") for name, one in memory.items()}
    groups = [
        ("Memory of the fullest device", [curve for name, curve in curves.items() if name.startswith("device")]),
        ("Memory of the host process", [curve for name, curve in curves.items() if not name.startswith("device")]),
    ]
    return [chart(title, part, "second", size) for title, part in groups if part]
