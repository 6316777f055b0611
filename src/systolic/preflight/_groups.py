"""Groups of cores that exchange values: along which axes of the mesh they lie, and which links of the slice they use."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import astuple, dataclass

import numpy as np

from ..sharding import DATA_AXIS, FSDP_AXIS, TENSOR_AXIS, MeshShape
from ._slices import Slice

_AXES = (DATA_AXIS, FSDP_AXIS, TENSOR_AXIS)
_BETWEEN = " x "
_HOST_BLOCK = (2, 2, 1)
"""Chips of a host along each axis: the devices of a slice are numbered host by host."""

Cores = tuple[int, ...]
"""Numbers of the cores of a group, in the order of the slice's devices."""


@dataclass(frozen=True)
class Group:
    """Cores that exchange values, as the links see them.

    Attributes:
        extents: chips along each axis of the torus, from the first of the group's to the last.
        chips: how many chips of a slice take part.
        sharing: how many groups use the same links at a time.
        slices: over how many slices.
        beside: how many groups use the network between slices at a time.
    """

    extents: tuple[int, ...]
    chips: int
    sharing: float = 1.0
    slices: int = 1
    beside: float = 1.0


def every_core(slice: Slice) -> Group:
    """All cores of a slice, or of several."""
    return Group(slice.shape, math.prod(slice.shape), slices=slice.count)


def between_slices(slice: Slice, slices: int) -> Group:
    """A core of each of some slices: all cores exchange values with their likes at the same time."""
    return Group(tuple(1 for _ in slice.shape), 1, slices=slices, beside=float(slice.devices // slice.count))


def group_of(slice: Slice, cores: Cores) -> Group:
    """The group of some cores, where all others form groups like it.

    Values go through all chips between its outermost ones. Of several groups that lie between each other's, each has its
    part of the links.

    Args:
        slice: whose cores they are.
        cores: their numbers.

    Example:
        >>> from systolic.preflight import parse_slice
        >>> group_of(parse_slice("v5litepod-8"), (0, 1))
        Group(extents=(2, 1), chips=2, sharing=1.0, slices=1, beside=4.0)
    """
    own = slice.devices // slice.count
    slices = len({core // own for core in cores})
    places = {chip_place(slice, core % own) for core in cores}
    extents = tuple(max(axis) - min(axis) + 1 for axis in zip(*places, strict=True))
    in_a_slice = len(cores) / slices
    return Group(extents, len(places), math.prod(extents) * slice.chip.devices / in_a_slice, slices, own / in_a_slice)


def chip_place(slice: Slice, core: int) -> tuple[int, ...]:
    """Coordinates of a core's chip in its slice; libtpu numbers cores host by host, and x first.

    Args:
        slice: one or several.
        core: its number in its slice.
    """
    chip, inner, outer = core // slice.chip.devices, [], []
    blocks = [min(size, most) for size, most in zip(slice.shape, _HOST_BLOCK, strict=False)]
    for block in blocks:
        inner.append(chip % block)
        chip //= block
    for block, size in zip(blocks, slice.shape, strict=True):
        outer.append(chip % (size // block))
        chip //= size // block
    return tuple(block * far + near for block, far, near in zip(blocks, outer, inner, strict=True))


def axis_groups(slice: Slice, shape: MeshShape | None, axis: str) -> list[Cores]:
    """The groups along an axis of the mesh, or along several: `data x fsdp`.

    Args:
        slice: all cores of the mesh.
        shape: of the mesh; None where all lie along the axis of the data.
        axis: what `axis_of` returned.
    """
    sizes = _sizes(slice, shape)
    ids, names = np.arange(slice.devices).reshape(sizes), axis.split(_BETWEEN)
    along = [number for number, name in enumerate(_AXES) if name in names]
    others = [number for number in range(len(_AXES)) if number not in along]
    return [tuple(map(int, row)) for row in ids.transpose(*others, *along).reshape(-1, math.prod(sizes[i] for i in along))]


def axis_of(slice: Slice, shape: MeshShape | None, groups: Collection[Cores]) -> str | None:
    """Name of the axis, or of the axes, of the mesh along which groups lie; None where there is none.

    Of several slices the programs are alike and name the cores of one: the parts of groups that lie in it.

    Args:
        slice: all cores of the mesh.
        shape: of the mesh; None where all lie along the axis of the data.
        groups: of cores.
    """
    wanted = {frozenset(group) for group in groups}
    for axis in _named(slice, shape):
        found = {frozenset(group) for group in axis_groups(slice, shape, axis)}
        if wanted in (found, _in_first_slice(slice, found)):
            return axis
    return None


def axis_within(slice: Slice, shape: MeshShape | None, pairs: Collection[Cores]) -> str | None:
    """Name of the axis, or of the axes, along which each of some pairs of cores lies; None where there is none.

    Args:
        slice: all cores of the mesh.
        shape: of the mesh; None where all lie along the axis of the data.
        pairs: sources and targets of a permutation.
    """
    for axis in _named(slice, shape):
        number = {core: n for n, group in enumerate(axis_groups(slice, shape, axis)) for core in group}
        if all(number[source] == number[target] for source, target in pairs):
            return axis
    return None


def axis_between(slice: Slice, shape: MeshShape | None) -> str | None:
    """Name of the axis, or of the axes, along which cores of several slices lie; None for a single slice."""
    own = slice.devices // slice.count
    for axis in _named(slice, shape):
        if len({core // own for core in axis_groups(slice, shape, axis)[0]}) == slice.count > 1:
            return axis
    return None


def _named(slice: Slice, shape: MeshShape | None) -> Sequence[str]:
    """Axes of more than one core, then pairs of them, then all."""
    there = [name for name, size in zip(_AXES, _sizes(slice, shape), strict=True) if size > 1]
    counts = range(1, len(there) + 1)
    return [_BETWEEN.join(names) for count in counts for names in itertools.combinations(there, count)]


def _sizes(slice: Slice, shape: MeshShape | None) -> tuple[int, ...]:
    return astuple(shape or MeshShape(data=slice.devices))


def _in_first_slice(slice: Slice, groups: Collection[frozenset[int]]) -> set[frozenset[int]]:
    own = slice.devices // slice.count
    return {part for group in groups if (part := frozenset(core for core in group if core < own))}
