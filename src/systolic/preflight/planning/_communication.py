"""Communication of a step by strategy: how many bytes each core sends for it, by formulas.

Sources: S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", section 7
(communication of data parallelism and of the stages), and the scaling book's chapter on training (parameters are gathered for
the forward and once more for the backward pass). docs/sharding.md has the bytes that the compiler makes of a Llama. The times
are those of `systolic.preflight._links`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .._links import collective_seconds
from .._model import CollectiveFigures
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


def communication(slice: Slice, strategy: str, traffic: Traffic, *, updates: bool) -> tuple[float, float]:
    """Seconds of one batch's communication: what nothing hides, and what can run beside computation.

    The sum of gradients that an optimizer waits for is hidden by nothing in the programs of data parallelism; what divided
    state fetches and leaves is started early (docs/scaling.md).

    Args:
        slice: the cores.
        strategy: by name.
        traffic: sizes.
        updates: whether the optimizer steps after this batch.
    """
    if slice.devices == 1:
        return 0.0, 0.0
    reduced = collective_seconds(slice, "all-reduce", traffic.gradients)
    scattered = collective_seconds(slice, "reduce-scatter", traffic.gradients)
    gathered = collective_seconds(slice, "all-gather", traffic.computed)
    match strategy:
        case "fsdp":
            return 0.0, 2 * gathered + scattered
        case "hsdp":
            groups = max(2, slice.hosts)
            parts = max(1, slice.devices // groups)
            return collective_seconds(slice, "all-reduce", math.ceil(traffic.gradients / parts)), 2 * gathered + scattered
        case "ddp_sharded":
            return collective_seconds(slice, "all-gather", traffic.parameters) if updates else 0.0, scattered
        case _:
            return reduced, 0.0


def communication_like(collectives: Iterable[CollectiveFigures], slice: Slice) -> tuple[float, float]:
    """The same collectives as a program's, on the cores of another slice: what nothing hides, and what runs beside."""
    found = [0.0, 0.0]
    for one in collectives:
        found[one.hidden] += one.count * collective_seconds(slice, one.kind, one.bytes // one.count)
    return found[0], found[1]
