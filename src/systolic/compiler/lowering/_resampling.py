"""Resampling of a dimension: the old elements that make up each new one; all of it is known before the step runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

# for each tap the positions it reads, and its weights (None for a weight of one everywhere)
Taps = tuple[list[np.ndarray], list[np.ndarray | None]]

Filter = Callable[[np.ndarray], np.ndarray]


Real = type[np.float32] | type[np.float64]
"""In what PyTorch rounds positions and weights: float64 for elements in float64, else float32."""


def _step(size: int, count: int, align: bool, scale: float | None, real: Real) -> np.floating[Any]:
    """How far apart new elements lie, in old ones."""
    if align:
        return real((size - 1) / (count - 1)) if count > 1 else real(0)
    return real(1 / scale) if scale else real(size) / real(max(count, 1))


def nearest(size: int, count: int, align: bool, scale: float | None, real: Real) -> Taps:
    """The element at or before each position, in float32 whatever the elements are."""
    places = np.floor(np.arange(count, dtype=np.float32) * _step(size, count, False, scale, np.float32))
    return [np.minimum(places.astype(np.int32), size - 1)], [None]


def nearest_exact(size: int, count: int, align: bool, scale: float | None, real: Real) -> Taps:
    """The element whose centre is nearest to each new centre, in float32 whatever the elements are."""
    centres = (np.arange(count, dtype=np.float32) + np.float32(0.5)) * _step(size, count, False, scale, np.float32)
    return [np.minimum(np.floor(centres).astype(np.int32), size - 1)], [None]


def _positions(size: int, count: int, align: bool, scale: float | None, real: Real) -> np.ndarray:
    places = np.arange(count, dtype=real)
    step = _step(size, count, align, scale, real)
    return places * step if align else (places + real(0.5)) * step - real(0.5)


def linear(size: int, count: int, align: bool, scale: float | None, real: Real) -> Taps:
    """The two elements around each position."""
    if size == count and (align or not scale or scale == 1):
        return [np.arange(count, dtype=np.int32)], [None]
    places = np.maximum(_positions(size, count, align, scale, real), 0)
    before = np.minimum(np.floor(places).astype(np.int32), size - 1)
    after = np.minimum(before + 1, size - 1)
    share = np.clip(places - before, 0, 1).astype(real)
    return [before, after], [1 - share, share]


def cubic(size: int, count: int, align: bool, scale: float | None, real: Real) -> Taps:
    """The four elements around each position, edges repeated."""
    places = _positions(size, count, align, scale, real)
    before = np.floor(places)
    share = (places - before).astype(real)
    offsets = range(-1, 3)
    positions = [np.clip(before.astype(np.int32) + offset, 0, size - 1) for offset in offsets]
    return positions, [_cubic_filter(share - offset, -0.75).astype(real) for offset in offsets]


def _cubic_filter(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _triangle_filter(distance: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(distance), 0)


_FILTERS: dict[str, tuple[Filter, int]] = {
    "linear": (_triangle_filter, 2),
    "cubic": (lambda distance: _cubic_filter(distance, -0.5), 4),
}


def antialiased(name: str) -> Callable[[int, int, bool, float | None, Real], Taps]:
    """A kernel that widens its filter when it shrinks, so that every old element counts."""
    function, width = _FILTERS[name]

    def kernel(size: int, count: int, align: bool, scale: float | None, real: Real) -> Taps:
        step = float(_step(size, count, align, scale, real))
        support = width * 0.5 * max(step, 1.0)
        shrink = 1 / step if step >= 1 else 1.0
        rows = [_row(size, step * (i + 0.5), support, shrink, function) for i in range(count)]
        taps = max(len(weights) for _, weights in rows)
        positions = np.zeros((taps, count), np.int32)
        shares = np.zeros((taps, count), real)
        for i, (start, weights) in enumerate(rows):
            positions[:, i] = np.minimum(start + np.arange(taps), size - 1)
            shares[: len(weights), i] = weights
        return list(positions), list(shares)

    return kernel


def _row(size: int, centre: float, support: float, shrink: float, function: Filter) -> tuple[int, Any]:
    """First position and weights of one new element."""
    start = max(math.trunc(centre - support + 0.5), 0)
    end = min(math.trunc(centre + support + 0.5), size)
    weights = function((np.arange(start, end) - centre + 0.5) * shrink)
    return start, weights / weights.sum()
