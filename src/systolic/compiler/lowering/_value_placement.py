"""How values of a program lie on the mesh, where it is not left to XLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import NamedSharding
from torch import fx

from ._node_meta import is_backward

Gathered = dict[tuple[fx.Node, bool], jax.Array]
"""State gathered for the forward pass (False) and for the backward pass (True)."""


@dataclass(frozen=True)
class ValuePlacement:
    """Constraints that the interpreter puts on values of a graph.

    Attributes:
        results: nodes whose value lies as given: split state, and what is computed for it.
        summed: of these, results that are sums over the batch: how they lie before they are split. XLA would else split the
            activations that they are computed from, and exchange those.
        gathered: for a node of split state: how it lies where another op computes with it. Such an op that is not in
            `split_users` gets it so.
        split_users: ops that take split state as it lies.
    """

    results: Mapping[fx.Node, NamedSharding]
    summed: Mapping[fx.Node, NamedSharding]
    gathered: Mapping[fx.Node, NamedSharding]
    split_users: frozenset[fx.Node]

    def of_result(self, node: fx.Node, value: Any) -> Any:
        """The value of a node where it has to lie."""
        if node in self.summed:
            value = jax.lax.with_sharding_constraint(value, self.summed[node])
        return jax.lax.with_sharding_constraint(value, self.results[node]) if node in self.results else value

    def for_user(self, user: fx.Node, source: fx.Node, values: Mapping[fx.Node, Any], made: Gathered) -> Any:
        """The value of `source` as `user` computes with it.

        Forward and backward gather anew: one copy for both would be the whole model, held until its gradients are there.

        Args:
            user: the op.
            source: one of its inputs.
            values: of the graph, so far.
            made: what was gathered so far; what is gathered now is added.
        """
        value = values[source]
        sharding = self.gathered.get(source)
        if sharding is None or user in self.split_users:
            return value
        in_backward = is_backward(user)
        known = made.get((source, in_backward))
        if known is not None:
            return known
        if in_backward:
            # XLA would take two equal gathers for one, so this one waits for a value of the backward
            anchor = next((values[n] for n in user.all_input_nodes if n is not source and is_backward(n)), None)
            if isinstance(anchor, jax.Array):
                value, _ = jax.lax.optimization_barrier((value, anchor))
        gathered = made[source, in_backward] = jax.lax.with_sharding_constraint(value, sharding)
        return gathered
