"""Communication of a program by the axes of its mesh, with the time that it takes by the model of the links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..sharding import MeshShape
from ._groups import Group, axis_between, axis_groups, axis_of, axis_within, between_slices, every_core, group_of
from ._hlo_analysis import Collective, HloAnalysis
from ._links import collective_seconds
from ._model import CollectiveFigures
from ._slices import Slice


def collectives_of(analysis: HloAnalysis, slice: Slice, shape: MeshShape | None) -> tuple[CollectiveFigures, ...]:
    """The collectives of a program, those of a kind and an axis together.

    Args:
        analysis: of the program.
        slice: where it runs.
        shape: the axes of its mesh; None where all cores lie along that of the data.
    """
    found: dict[tuple[str, str, bool, int], list[tuple[int, int, float]]] = defaultdict(list)
    places = _Places(slice, shape)
    for one in analysis.collectives:
        axis, group = places.of(one)
        found[one.kind, axis, one.overlaps, one.slices].append(
            (one.times, one.bytes, collective_seconds(slice, one.kind, one.bytes, group))
        )
    return tuple(
        CollectiveFigures(
            kind=kind,
            axis=axis,
            count=sum(times for times, _, _ in same),
            bytes=sum(times * size for times, size, _ in same),
            seconds=sum(times * seconds for times, _, seconds in same),
            hidden=hidden,
            slices=slices,
        )
        for (kind, axis, hidden, slices), same in found.items()
    )


def seconds_elsewhere(
    collectives: Iterable[CollectiveFigures], slice: Slice, shape: MeshShape | None, before: MeshShape | None
) -> tuple[float, float]:
    """The same collectives on another mesh: seconds of what nothing hides, and of what runs beside computation.

    What goes over other axes than that of the divided state is a part of it, and is as much smaller as there are more parts.

    Args:
        collectives: of a program.
        slice: where they would run.
        shape: the axes of the mesh there.
        before: the axes of the program's mesh.
    """
    every, found = list(collectives), [0.0, 0.0]
    parts = (before or MeshShape()).fsdp / (shape or MeshShape()).fsdp
    separate = any(one.slices > 1 for one in every)
    for one in every:
        if one.slices > 1 and slice.count == 1:
            continue
        size = one.bytes / one.count * (1.0 if "fsdp" in one.axis else parts)
        group = between_slices(slice, slice.count) if one.slices > 1 else _along(one.axis, slice, shape, separate)
        found[one.hidden] += one.count * collective_seconds(slice, one.kind, int(size), group)
    return found[0], found[1]


_UNNAMED = "groups of "


def _along(axis: str, slice: Slice, shape: MeshShape | None, separate: bool) -> Group | None:
    """A group along an axis; None for all cores. Where exchanges between slices are separate, the part in one slice."""
    if axis.startswith(_UNNAMED):
        return None
    cores = axis_groups(slice, shape, axis)[0]
    own = slice.devices // slice.count
    inside = tuple(core for core in cores if core < own) if separate else cores
    return group_of(slice, inside)


class _Places:
    """Axis and links of the groups of a program, which are few."""

    def __init__(self, slice: Slice, shape: MeshShape | None) -> None:
        self._slice, self._shape = slice, shape
        self._found: dict[tuple[tuple[int, ...], ...], tuple[str, Group]] = {}

    def of(self, one: Collective) -> tuple[str, Group]:
        if one.slices > 1:
            return axis_between(self._slice, self._shape) or "slices", between_slices(self._slice, one.slices)
        if one.groups not in self._found:
            self._found[one.groups] = self._place(one)
        return self._found[one.groups]

    def _place(self, one: Collective) -> tuple[str, Group]:
        groups = one.groups or (tuple(range(self._slice.devices)),)
        if one.kind == "collective-permute":
            longest = max((group_of(self._slice, pair) for pair in groups), key=lambda group: sum(group.extents))
            return axis_within(self._slice, self._shape, groups) or f"{_UNNAMED}2", longest
        axis = axis_of(self._slice, self._shape, groups)
        whole = len(groups[0]) == self._slice.devices
        group = every_core(self._slice) if whole else group_of(self._slice, groups[0])
        return axis or f"{_UNNAMED}{len(groups[0])}", group
