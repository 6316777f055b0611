"""Parts of a graph that do the same, node for node: their ops are lowered once, as a function that the program calls.

A transformer of twelve equal layers is traced by JAX and written as StableHLO for one of them; XLA puts the calls' bodies in
their places before it does anything else, and compiles what it would have compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from torch import fx

from ._checks import Check, Checks, StepCheck
from ._context import LoweringContext, lowering_context
from ._evaluate import evaluate
from ._stash import Call, Left, Stash


@dataclass(frozen=True, eq=False)
class Part:
    """Some nodes of a graph, one after another.

    Attributes:
        nodes: in their order.
        inputs: nodes outside that they take.
        taken: calls of JAX functions outside whose pullbacks they take.
        left: their calls whose pullbacks are used outside.
        scope: what their scopes begin with.
    """

    nodes: tuple[fx.Node, ...]
    inputs: tuple[fx.Node, ...]
    taken: tuple[Call, ...]
    left: tuple[Call, ...]
    scope: str


@dataclass(frozen=True, eq=False)
class AlikePart:
    """A part that does what a model does.

    Attributes:
        own: the part.
        model: the one whose nodes are lowered for all that do the same; all that it has is in the part's order.
        results: positions of nodes whose values are used outside of one of them.
    """

    own: Part
    model: Part
    results: tuple[int, ...]


@jax.tree_util.register_pytree_node_class
class _Facts:
    """Facts about a function's results, from the trace of it; a pytree without leaves, so that JAX hands it on.

    Args:
        left: of each call whose pullback is used outside: its arity, and the pullback's structure.
        checks: what the checks in it require, and the position of the node that makes each.
    """

    def __init__(self, left: list[tuple[int, Any]], checks: list[tuple[Check | StepCheck, int]]) -> None:
        self.left = left
        self.checks = checks

    def tree_flatten(self) -> tuple[tuple[()], _Facts]:
        """No leaves, and itself."""
        return (), self

    @classmethod
    def tree_unflatten(cls, facts: _Facts, _leaves: object) -> _Facts:
        """Itself."""
        return facts


def run_part(alike: AlikePart, values: dict[fx.Node, Any], context: LoweringContext) -> None:
    """Call the function of a part's model for it.

    Args:
        alike: the part.
        values: those of the graph so far; what other nodes take of the part is added.
        context: that of the program.
    """
    part, nodes = alike.own, set(alike.own.nodes)
    given = [values[node] for node in part.inputs]
    # a number of Python's decides on shapes and branches, and is no argument of a JAX function
    numbers = {at: value for at, value in enumerate(given) if isinstance(value, int | float)}
    arrays = [None if at in numbers else value for at, value in enumerate(given)]
    taken = [left for call in part.taken if (left := context.stash.get(call)) is not None]
    assert len(taken) == len(part.taken), "a part takes what a call before it has left"
    key = alike.model, *((at, type(value), value) for at, value in numbers.items()), *(id(left.structure) for left in taken)
    if key not in context.functions:
        context.functions[key] = _function(alike, numbers, taken, context)
    draws = np.asarray([node.meta["draw"] for node in part.nodes if "draw" in node.meta], np.uint32)
    with jax.named_scope(part.scope):
        results, left, words, facts = context.functions[key](
            context.key if draws.size else None, draws, arrays, [one.leaves for one in taken]
        )
    for call, leaves, (arity, structure) in zip(part.left, left, facts.left, strict=True):
        context.stash.keep(call, Left(arity, tuple(leaves), structure))
    for word, (check, position) in zip(words, facts.checks, strict=True):
        context.checks.add_of_part(word, check, part.nodes[position])
    for position, value in zip(alike.results, results, strict=True):
        if any(user not in nodes for user in part.nodes[position].users):
            values[part.nodes[position]] = value


def _function(
    alike: AlikePart, numbers: Mapping[int, Any], taken: Sequence[Left], outer: LoweringContext
) -> Callable[..., Any]:
    """The function that the program calls: from a random key, draws, inputs and leavings to results and new leavings."""
    model = alike.model

    def layer(
        key: jax.Array | None, draws: jax.Array, arrays: Sequence[Any], leaves: Sequence[Sequence[Any]]
    ) -> tuple[list[Any], list[list[Any]], list[jax.Array], _Facts]:
        values = {node: numbers.get(at, arrays[at]) for at, node in enumerate(model.inputs)}
        stash = Stash()
        for call, left, own in zip(model.taken, taken, leaves, strict=True):
            stash.keep(call, Left(left.arity, tuple(own), left.structure))
        drawing = [node for node in model.nodes if "draw" in node.meta]
        context = replace(
            outer, key=key, stash=stash, checks=Checks(), gathered={}, writes=None, functions={}, inside=model.scope,
            draws={node: draws[at] for at, node in enumerate(drawing)},
        )  # fmt: skip
        with lowering_context(context):
            for node in model.nodes:
                values[node] = evaluate(node, values, context)
        lefts = [left for call in model.left if (left := stash.get(call)) is not None]
        assert len(lefts) == len(model.left), "a call whose gradient stands outside has left its pullback"
        places = {node: position for position, node in enumerate(model.nodes)}
        facts = _Facts(
            [(left.arity, left.structure) for left in lefts],
            [(check, places[node]) for check, node in context.checks.by_node()],
        )
        results = [values[model.nodes[position]] for position in alike.results]
        return results, [list(left.leaves) for left in lefts], list(context.checks.words), facts

    return jax.jit(layer)
