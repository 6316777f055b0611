"""How long communication takes: a model, stated here.

A ring over n chips moves (n - 1) / n of the bytes once for all-gather and reduce-scatter, and twice for all-reduce.
Inside of a slice it uses all axes of the torus that have more than one chip, at once, each link in both directions
(scaling book, chapter on sharding: the bandwidth of an axis is two times that of a link one way; an axis without
wraparound, shorter than a full one, has half of it). Every hop adds a microsecond. Between slices the ring goes through
the data centre's network, 25 GB/s a host (scaling book, chapter on TPUs), after the reduction inside of each slice.
Cores of one chip share its links, so their number does not count.
"""

from __future__ import annotations

import math

from ._slices import Slice

_HOP_SECONDS = 1e-6
_NETWORK_PER_HOST = 25e9
_FULL_AXIS = {2: 16, 3: 4}
"""Chips of an axis that is closed to a ring: 16 on a two-dimensional torus, multiples of 4 on a three-dimensional one."""

_PASSES = {"all-reduce": 2.0}


def collective_seconds(slice: Slice, kind: str, size: int) -> float:
    """Predicted time of one collective over all cores.

    Args:
        slice: where it runs.
        kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute".
        size: bytes of the whole result (all-gather) or operand (others) on one core.
    """
    inside = math.prod(slice.shape)
    passes = _PASSES.get(kind, 1.0)
    seconds = 0.0
    if inside > 1:
        axes = [n for n in slice.shape if n > 1]
        bandwidth = sum(_axis_bandwidth(slice, n) for n in axes)
        hops = passes * sum(n // 2 if _is_closed(slice, n) else n - 1 for n in axes)
        seconds += passes * size * (inside - 1) / inside / bandwidth + hops * _HOP_SECONDS
    if slice.count > 1:
        network = _NETWORK_PER_HOST * slice.hosts / slice.count
        seconds += passes * size * (slice.count - 1) / slice.count / network
    return seconds


def _axis_bandwidth(slice: Slice, chips: int) -> float:
    return slice.chip.link_bandwidth * (2 if _is_closed(slice, chips) else 1)


def _is_closed(slice: Slice, chips: int) -> bool:
    return chips % _FULL_AXIS[slice.chip.dimensions] == 0
