"""Series of a run of any length in a bounded number of points: neighbours are merged, and nothing is dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST_POINTS = 400
_SHORTEST, _RATIO, _BINS = 1e-6, 1.05, 520
"""Bins of durations: from a microsecond, each 5% wider than the one before, to more than a day."""


class Spread:
    """Distribution of durations: counts in bins of 5%, so that a percentile is known to 2.5%, however many there were."""

    def __init__(self) -> None:
        self._counts = np.zeros(_BINS, np.int64)

    def add(self, seconds: Sequence[float]) -> None:
        """Take durations."""
        above = np.log(np.maximum(seconds, _SHORTEST) / _SHORTEST) / math.log(_RATIO)
        self._counts += np.bincount(np.minimum(above.astype(np.int64), _BINS - 1), minlength=_BINS)

    def percentile(self, percent: float) -> float | None:
        """Seconds that so many percent of the durations do not exceed; None while there are none."""
        reached = np.cumsum(self._counts)
        if not reached[-1]:
            return None
        index = int(np.searchsorted(reached, percent / 100 * reached[-1]))
        return _SHORTEST * _RATIO ** (index + 0.5)


class StepPoints:
    """Durations of steps, as points of equally many steps each; the size doubles when there are more than 400 points.

    Attributes:
        count: how many steps there were.
        seconds: their durations, added up.
        waited: the part of it that the loop waited for data.
    """

    def __init__(self) -> None:
        self.count = 0
        self.seconds = self.waited = 0.0
        self._size = 1
        self._points: list[list[float]] = []  # steps, seconds, longest, waited
        self._spread = Spread()

    def add(self, seconds: Sequence[float], waits: Sequence[float]) -> None:
        """Take the durations of steps, each with its wait for data, in order."""
        self._spread.add(seconds)
        self.count += len(seconds)
        self.seconds += sum(seconds)
        self.waited += sum(waits)
        begin = 0
        while begin < len(seconds):
            if not self._points or self._points[-1][0] >= self._size:
                self._points.append([0, 0.0, 0.0, 0.0])
            last = self._points[-1]
            end = begin + self._size - int(last[0])
            part = seconds[begin:end]
            last[0] += len(part)
            last[1] += sum(part)
            last[2] = max(last[2], *part)
            last[3] += sum(waits[begin:end])
            begin = end
            if len(self._points) > _MOST_POINTS:
                self._merge()

    def _merge(self) -> None:
        self._size *= 2
        points, self._points = self._points, []
        for one, other in zip(points[::2], [*points[1::2], None], strict=False):
            if other is not None:
                one = [one[0] + other[0], one[1] + other[1], max(one[2], other[2]), one[3] + other[3]]
            self._points.append(one)

    def as_dict(self) -> dict[str, Any]:
        """Totals, percentiles, and the points as [steps, seconds, longest, waited]."""
        return {
            "count": self.count,
            "seconds": self.seconds,
            "waited": self.waited,
            "percentiles": {str(p): self._spread.percentile(p) for p in (5, 50, 95, 99)},
            "points": [list(point) for point in self._points],
        }


class ValuePoints:
    """Values over a number that grows (a step, seconds), as points with mean, smallest and largest value.

    Values that are not finite have no place in a curve; they are counted.
    """

    def __init__(self) -> None:
        self._size = 1
        self._points: list[list[float]] = []  # at, mean, smallest, largest, how many
        self._odd = 0
        self._first_odd: float | None = None

    def add(self, at: float, value: float) -> None:
        """Take a value."""
        if not math.isfinite(value):
            self._odd += 1
            self._first_odd = at if self._first_odd is None else self._first_odd
            return
        if not self._points or self._points[-1][4] >= self._size:
            self._points.append([at, value, value, value, 1])
        else:
            self._points[-1] = _merged(self._points[-1], [at, value, value, value, 1])
        if len(self._points) > _MOST_POINTS:
            self._size *= 2
            points = self._points
            pairs = zip(points[::2], [*points[1::2], None], strict=False)
            self._points = [one if other is None else _merged(one, other) for one, other in pairs]

    def as_dict(self) -> dict[str, Any]:
        """The points as [at, mean, smallest, largest], and how many values were not finite, from where on."""
        return {
            "points": [point[:4] for point in self._points],
            "not_finite": self._odd,
            "first_not_finite": self._first_odd,
        }


def _merged(one: list[float], other: list[float]) -> list[float]:
    count = one[4] + other[4]
    mean = one[1] * (one[4] / count) + other[1] * (other[4] / count)
    return [other[0], mean, min(one[2], other[2]), max(one[3], other[3]), count]
