"""Communication of a step by strategy: how many bytes each core sends for it, by formulas.

Sources: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 7
(communication of data parallelism and of the stages), and the scaling book's chapter on training (parameters are gathered for
the forward and once more for the backward pass). docs/sharding.md has the bytes that the compiler makes of a Llama. The times
are those of `systolic.preflight._links`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...sharding import DATA_AXIS, FSDP_AXIS, MeshShape
from .._groups import Group, axis_groups, group_of
from .._links import collective_seconds
from .._slices import Slice


@dataclass(frozen=True)
class Traffic:
    """Whole sizes of what is communicated.

    Attributes:
        parameters: bytes of all parameters, as the state holds them.
        computed: the same in the type that products take.
        gradients: bytes of all gradients.
    """

    parameters: int
    computed: int
    gradients: int


def communication(
    slice: Slice, strategy: str, traffic: Traffic, shape: MeshShape | None = None, *, updates: bool
) -> tuple[float, float]:
    """Seconds of one batch's communication: what nothing hides, and what can run beside computation.

    The sum of gradients that an optimizer waits for is hidden by nothing in the programs of data parallelism; what divided
    state fetches and leaves is started early (docs/scaling.md).

    Args:
        slice: the cores.
        strategy: by name.
        traffic: sizes.
        shape: the axes of the mesh; None where all cores lie along one.
        updates: whether the optimizer steps after this batch.
    """
    if slice.devices == 1:
        return 0.0, 0.0
    inside, across = _groups(slice, shape)
    scattered = collective_seconds(slice, "reduce-scatter", traffic.gradients, inside)
    gathered = collective_seconds(slice, "all-gather", traffic.computed, inside)
    match strategy:
        case "fsdp" | "hsdp":
            part = 0 if shape is None else math.ceil(traffic.gradients / shape.fsdp)
            return 0.0 if across is None else collective_seconds(slice, "all-reduce", part, across), 2 * gathered + scattered
        case "ddp_sharded":
            return collective_seconds(slice, "all-gather", traffic.parameters) if updates else 0.0, scattered
        case _:
            return collective_seconds(slice, "all-reduce", traffic.gradients), 0.0


def _groups(slice: Slice, shape: MeshShape | None) -> tuple[Group | None, Group | None]:
    """Cores that divide the state, None for all; and those with equal parts of it, None where there are none."""
    if shape is None or shape.data == 1:
        return None, None
    inside, across = (group_of(slice, axis_groups(slice, shape, axis)[0]) for axis in (FSDP_AXIS, DATA_AXIS))
    return inside, across
