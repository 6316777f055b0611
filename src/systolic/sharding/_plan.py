"""Plans: which layers are split over the axis "tensor", by patterns of their names, in the words of transformers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from jax.sharding import PartitionSpec

from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from ._mesh import DATA_AXIS, FSDP_AXIS, TENSOR_AXIS
from ._rules import StateEntry, StateRule

Plan = Mapping[str, str | tuple[str | None, ...]]
"""From patterns of module or parameter names (`layers.*.q_proj`; `*` is one part of a name) to a style, or to one axis of the
mesh (or None) for each dimension of the parameter."""

# by style: the axes of a weight [out, in], and of a bias [out]
_STYLES: dict[str, tuple[tuple[str | None, ...], tuple[str | None, ...]]] = {
    "colwise": ((TENSOR_AXIS,), (TENSOR_AXIS,)),
    "rowwise": ((None, TENSOR_AXIS), ()),
    "embedding_rowwise": ((TENSOR_AXIS,), ()),
    "embedding_colwise": ((None, TENSOR_AXIS), ()),
    "replicate": ((), ()),
}
# XLA keeps track of what is whole where, so that these say nothing more than the first ones
_SAME_AS = {
    "packed_colwise": "colwise",
    "colwise_rep": "colwise",
    "colwise_gather_output": "colwise",
    "packed_rowwise": "rowwise",
    "rowwise_rep": "rowwise",
    "rowwise_split_input": "rowwise",
    "sequence_parallel": "replicate",
    "replicated_with_grad_allreduce": "replicate",
    "moe_identity_expert": "replicate",
}
STYLES = (*_STYLES, *_SAME_AS)
"""The styles of a plan."""


def shard_by_plan(plan: Plan, transposed: frozenset[str] = frozenset()) -> StateRule:
    """A rule from a plan; gradients and moments lie as their parameter does, and what no pattern fits is whole.

    Args:
        plan: patterns with styles or axes; the first pattern that fits decides.
        transposed: names of weights that are [in, out], as those of transformers' `Conv1D`.

    Raises:
        MisconfigurationException: a style or an axis that there is not.

    Example:
        >>> from systolic.sharding import StateEntry, shard_by_plan
        >>> rule = shard_by_plan({"layers.*.up": "colwise", "layers.*.down": "rowwise"})
        >>> rule(StateEntry("layers.0.down.weight", (64, 256), "parameter", "layers.0.down.weight", (64, 256)))
        P(None, 'tensor')
    """
    compiled = [(_pattern(text), _require_known(text, what)) for text, what in plan.items()]

    def rule(entry: StateEntry) -> PartitionSpec:
        if not entry.parameter or entry.shape != entry.parameter_shape:
            return PartitionSpec()
        name, _, kind = entry.parameter.rpartition(".")
        for pattern, what in compiled:
            if isinstance(what, tuple):
                if pattern.fullmatch(entry.parameter):
                    return PartitionSpec(*what)
            elif pattern.fullmatch(name) or pattern.fullmatch(entry.parameter):
                return _styled(what, kind, len(entry.shape), entry.parameter in transposed)
        return PartitionSpec()

    return rule


def splits_evenly(spec: PartitionSpec, shape: tuple[int, ...], parts: int) -> bool:
    """Whether every dimension that is split over one axis of that many devices divides."""
    return all(axis is None or size % parts == 0 for size, axis in zip(shape, spec, strict=False))


def _styled(style: str, kind: str, rank: int, transposed: bool) -> PartitionSpec:
    weight, bias = _STYLES[_SAME_AS.get(style, style)]
    axes = bias if kind == "bias" or rank == 1 else weight
    if transposed and rank == 2:
        axes = tuple(reversed([*axes, *[None] * (2 - len(axes))]))
    return PartitionSpec(*axes)


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(r"[^.]+".join(re.escape(part) for part in text.split("*")))


def _require_known(pattern: str, what: str | tuple[str | None, ...]) -> str | tuple[str | None, ...]:
    axes = (DATA_AXIS, FSDP_AXIS, TENSOR_AXIS)
    if isinstance(what, str) and what not in STYLES:
        raise MisconfigurationException(
            f"Invalid style for {pattern!r} in the plan. Expected one of {', '.join(map(repr, STYLES))}, or a tuple with an "
            f"axis ({', '.join(map(repr, axes))}) or None for each dimension. Received: {what!r}.{suggest(what, STYLES)}"
        )
    if isinstance(what, tuple) and any(axis not in (*axes, None) for axis in what):
        raise MisconfigurationException(
            f"Invalid axes for {pattern!r} in the plan. Expected {', '.join(map(repr, axes))} or None for each dimension. "
            f"Received: {what!r}."
        )
    return what
