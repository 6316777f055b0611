"""How long communication takes: a model, stated here.

A ring over n chips moves (n - 1) / n of the bytes once for all-gather and reduce-scatter, and twice for all-reduce.
Inside of a slice it uses all axes of the torus along which the group has more than one chip, at once, each link in both
directions (scaling book, chapter on sharding: the bandwidth of an axis is two times that of a link one way; an axis without
wraparound, shorter than a full one, has half of it). Groups that lie between each other's chips share the links between them.
Every hop adds a microsecond. A permutation goes over one link in one direction. Between slices the ring goes through
the data centre's network, 25 GB/s a host (scaling book, chapter on TPUs), after the reduction inside of each slice.
Cores of one chip share its links, so their number does not count.
"""

from __future__ import annotations

from ._groups import Group, every_core
from ._slices import Slice

_HOP_SECONDS = 1e-6
_NETWORK_PER_HOST = 25e9
_FULL_AXIS = {2: 16, 3: 4}
"""Chips of an axis that is closed to a ring: 16 on a two-dimensional torus, multiples of 4 on a three-dimensional one."""

_PASSES = {"all-reduce": 2.0}


def collective_seconds(slice: Slice, kind: str, size: int, group: Group | None = None) -> float:
    """Predicted time of one collective.

    Args:
        slice: where it runs.
        kind: "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute".
        size: bytes of the whole result (all-gather) or operand (others) on one core.
        group: the cores that exchange values; default: all.
    """
    group = group or every_core(slice)
    if kind == "collective-permute":
        return _permute_seconds(slice, size, group)
    passes, seconds = _PASSES.get(kind, 1.0), 0.0
    axes = [(n, n == whole and _is_closed(slice, n)) for n, whole in zip(group.extents, slice.shape, strict=True) if n > 1]
    if group.chips > 1:
        bandwidth = sum(slice.chip.link_bandwidth * (2 if closed else 1) for _, closed in axes)
        hops = passes * sum(n // 2 if closed else n - 1 for n, closed in axes)
        seconds += passes * size * (group.chips - 1) / group.chips * group.sharing / bandwidth + hops * _HOP_SECONDS
    if group.slices > 1:
        network = _NETWORK_PER_HOST * slice.hosts / slice.count
        seconds += passes * size * (group.slices - 1) / group.slices * group.beside / network
    return seconds


def _permute_seconds(slice: Slice, size: int, group: Group) -> float:
    hops = sum(n - 1 for n in group.extents)
    return size * group.sharing / slice.chip.link_bandwidth + hops * _HOP_SECONDS if hops else 0.0


def _is_closed(slice: Slice, chips: int) -> bool:
    return chips % _FULL_AXIS[slice.chip.dimensions] == 0
