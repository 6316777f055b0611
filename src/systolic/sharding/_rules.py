"""Rules that say how each tensor of the state lies on the mesh."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from jax.sharding import PartitionSpec

from ._mesh import MeshShape

StateKind = Literal["parameter", "buffer", "gradient", "optimizer", "other"]


@dataclass(frozen=True)
class StateEntry:
    """A tensor of the state, as rules and listings see it.

    Attributes:
        name: its path, as the user would write it: `layers.0.weight`, `optimizer0.exp_avg.layers.0.weight`.
        shape: its shape.
        kind: what it is.
        parameter: the name of the parameter that it is, or that it belongs to (a gradient, an optimizer's moment); else "".
        parameter_shape: the shape of that parameter.
    """

    name: str
    shape: tuple[int, ...]
    kind: StateKind
    parameter: str = ""
    parameter_shape: tuple[int, ...] = ()


StateRule = Callable[[StateEntry], PartitionSpec]
"""From a tensor of the state to the axes of the mesh that its dimensions are split over."""


def replicate_state(entry: StateEntry) -> PartitionSpec:
    """Every device holds the whole state. This is the rule of data parallelism, and the default."""
    del entry
    return PartitionSpec()


@dataclass(frozen=True)
class StateLayout:
    """How a run's state lies on its devices.

    Attributes:
        rule: where each tensor lies.
        shape: the axes that the rule names; None for a mesh whose only axis is that of the data.
    """

    rule: StateRule = replicate_state
    shape: MeshShape | None = None


DATA_PARALLEL = StateLayout()
"""Every device holds the whole state."""


def shard_by_name(patterns: Mapping[str, PartitionSpec]) -> StateRule:
    r"""A rule from patterns of parameter names: the first one that fits the whole name decides.

    Gradients and moments of the parameter's shape lie as the parameter does. All that no pattern fits is whole on every
    device.

    Args:
        patterns: regular expressions with the placement of what they fit.

    Example:
        >>> from jax.sharding import PartitionSpec
        >>> from systolic.sharding import StateEntry, shard_by_name
        >>> rule = shard_by_name({r"embedding\.weight": PartitionSpec("data")})
        >>> rule(StateEntry("embedding.weight", (64, 8), "parameter", "embedding.weight", (64, 8)))
        P('data',)
    """
    compiled = [(re.compile(pattern), spec) for pattern, spec in patterns.items()]

    def rule(entry: StateEntry) -> PartitionSpec:
        if not entry.parameter or entry.shape != entry.parameter_shape:
            return PartitionSpec()
        return next((spec for pattern, spec in compiled if pattern.fullmatch(entry.parameter)), PartitionSpec())

    return rule
