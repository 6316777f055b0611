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
class TableLookup:
    """A lookup in a table that is split by its features, or the sum of the table's gradient.

    Every device works on its features of the rows of all devices that share the table.

    Attributes:
        indices: the rows that are looked up.
        rows: what the lookup gives, or the gradients that are summed.
        common: how `indices` lie: whole where the table is split.
        by_features: how `rows` lie next to the table.
        by_batch: how they lie elsewhere.
    """

    indices: fx.Node
    rows: fx.Node
    common: NamedSharding
    by_features: NamedSharding
    by_batch: NamedSharding


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
        lookups: of these, lookups in split tables and sums of their gradients.
    """

    results: Mapping[fx.Node, NamedSharding]
    summed: Mapping[fx.Node, NamedSharding]
    gathered: Mapping[fx.Node, NamedSharding]
    split_users: frozenset[fx.Node]
    lookups: Mapping[fx.Node, TableLookup]

    def of_result(self, node: fx.Node, value: Any) -> Any:
        """The value of a node where it has to lie."""
        lookup = self.lookups.get(node)
        if lookup is not None and lookup.rows is node:
            value = jax.lax.with_sharding_constraint(value, lookup.by_features)
            return jax.lax.with_sharding_constraint(value, lookup.by_batch)
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
        lookup = self.lookups.get(user)
        if lookup is not None and source is lookup.indices:
            return jax.lax.with_sharding_constraint(value, lookup.common)
        if lookup is not None and source is lookup.rows:
            # said of both sides: XLA would compute what comes before it by features, too, and gather whole activations
            value = jax.lax.with_sharding_constraint(value, lookup.by_batch)
            return jax.lax.with_sharding_constraint(value, lookup.by_features)
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
