"""Rules that split the whole state of a run over the devices, whatever the model is."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from jax.sharding import PartitionSpec

from ._mesh import FSDP_AXIS, MeshShape
from ._rules import StateEntry, StateKind, StateRule, replicate_state

SMALLEST_SPLIT = 2048
"""Tensors of up to this many numbers stay whole: to gather one costs more time than it saves memory."""

_SPLIT_KINDS: tuple[StateKind, ...] = ("parameter", "gradient", "optimizer")


@dataclass(frozen=True)
class FullySharded:
    """The rule of `strategy="fsdp"`: every large tensor of the state is split along its largest dimension that divides.

    Embedding tables are split by their features, where these divide: a lookup then moves the rows that it takes, not the table.
    Buffers, and tensors that modules keep in attributes, stay whole. Gradients and moments lie as their parameter does.

    Args:
        shape: the axes of the mesh.
        inner: a rule that has split dimensions over other axes already; they are taken into account.
        tables: names of the embedding tables; asked for when the first tensor is placed.
        kinds: what is split: without "parameter", every device holds the parameters whole and updates a part of them.

    Example:
        >>> from systolic.sharding import FullySharded, MeshShape, StateEntry
        >>> rule = FullySharded(MeshShape(fsdp=8))
        >>> rule(StateEntry("head.weight", (1000, 512), "parameter", "head.weight", (1000, 512)))
        P('fsdp',)
    """

    shape: MeshShape
    inner: StateRule = replicate_state
    kinds: Collection[StateKind] = _SPLIT_KINDS
    tables: Callable[[], Collection[str]] = tuple

    def __call__(self, entry: StateEntry) -> PartitionSpec:
        """The axes of the mesh that the tensor's dimensions are split over."""
        spec = self.inner(entry)
        if entry.kind not in self.kinds or not entry.parameter or math.prod(entry.shape) <= SMALLEST_SPLIT:
            return spec
        if (
            not any(spec)
            and entry.shape[-1] % self.shape.fsdp == 0
            and self.shape.fsdp > 1
            and entry.parameter in self.tables()
        ):
            return PartitionSpec(*[None] * (len(entry.shape) - 1), FSDP_AXIS)
        return _with_fsdp(entry.shape, spec, self.shape)


def _with_fsdp(shape: tuple[int, ...], spec: PartitionSpec, mesh: MeshShape) -> PartitionSpec:
    if mesh.fsdp == 1 or any(axes == FSDP_AXIS or (isinstance(axes, tuple) and FSDP_AXIS in axes) for axes in spec):
        return spec
    taken = [*spec, *[None] * (len(shape) - len(spec))]
    free = [i for i, size in enumerate(shape) if taken[i] is None and size % mesh.fsdp == 0]
    both = [i for i, size in enumerate(shape) if taken[i] is not None and size % (mesh.fsdp * mesh.tensor) == 0]
    if free:
        taken[max(free, key=lambda i: shape[i])] = FSDP_AXIS
    elif both:
        taken[both[0]] = (taken[both[0]], FSDP_AXIS)
    while taken and taken[-1] is None:
        taken.pop()
    return PartitionSpec(*taken)


def without_fsdp(spec: PartitionSpec) -> PartitionSpec:
    """How a tensor lies while it is computed with: gathered along the axis over which only the state at rest is split."""

    def computed(axes: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        if isinstance(axes, tuple):
            left = tuple(axis for axis in axes if axis != FSDP_AXIS)
            return left[0] if len(left) == 1 else left or None
        return None if axes == FSDP_AXIS else axes

    return PartitionSpec(*(computed(axes) for axes in spec))
