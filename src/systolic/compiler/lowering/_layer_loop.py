"""Equal layers as one loop: its body is lowered and compiled once, and runs for every layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from torch import fx

from ._channels_last import ordinary
from ._checks import Check, Checks, StepCheck
from ._context import LoweringContext, lowering_context
from ._counted_scan import counted_scan
from ._evaluate import evaluate
from ._layer_values import Row, Stack, Values, alone, stack_of
from ._stash import Call, Left, Stash


@dataclass(frozen=True)
class Carried:
    """A value that a layer takes from the one that runs before it.

    Attributes:
        source: the node that the loop's model layer takes.
        initial: the node that the first layer takes.
        position: which node of a layer gives it to the next one.
    """

    source: fx.Node
    initial: fx.Node
    position: int


@dataclass(frozen=True, eq=False)
class LayerLoop:
    """A part of a graph that is there once for every layer, node for node.

    Attributes:
        layers: the nodes of each layer; those in one position do the same.
        model: the layer whose nodes are lowered for all of them.
        reverse: whether the last layer runs first, as in a backward pass.
        shared: nodes outside that every layer takes.
        layered: nodes outside of which each layer takes one, by layer.
        carried: what goes from layer to layer.
        left: calls of JAX functions whose pullbacks are used outside, by layer.
        taken: calls outside whose pullbacks are used inside, by layer.
        names: scopes of the model layer, and how they are written into the program.
        own: the nodes that are evaluated nowhere else; the others are views of weights, and what is computed again.
        results: positions of nodes whose values are used outside.
        histories: of `carried`, by number, those of which another loop takes what each layer took.
    """

    layers: tuple[tuple[fx.Node, ...], ...]
    model: int
    reverse: bool
    shared: tuple[fx.Node, ...]
    layered: tuple[tuple[fx.Node, ...], ...]
    carried: tuple[Carried, ...]
    left: tuple[tuple[Call, ...], ...]
    taken: tuple[tuple[Call, ...], ...]
    names: Mapping[str, str]
    own: frozenset[fx.Node]
    results: tuple[int, ...] = ()
    histories: tuple[int, ...] = ()

    def inputs(self) -> Iterator[fx.Node]:
        """Nodes outside that the loop takes."""
        yield from self.shared
        for nodes in self.layered:
            yield from nodes
        for one in self.carried:
            yield one.initial

    def history(self, carried: Carried) -> tuple[fx.Node, ...]:
        """The nodes that each layer took of what goes from layer to layer, by layer."""
        given = tuple(nodes[carried.position] for nodes in self.layers)
        return (*given[1:], carried.initial) if self.reverse else (carried.initial, *given[:-1])

    def last(self, position: int) -> fx.Node:
        """A node of the layer that runs last."""
        return self.layers[0 if self.reverse else -1][position]

    def draws(self) -> jax.Array:
        """Numbers of the random ops: [layers, ops]."""
        numbers = [[node.meta["draw"] for node in nodes if "draw" in node.meta] for nodes in self.layers]
        return jnp.asarray(numbers, jnp.uint32)


class _Outputs:
    """Arrays that a loop's body hands out for every layer, each once."""

    def __init__(self) -> None:
        self.arrays: list[jax.Array] = []
        self._places: dict[int, int] = {}

    def add(self, array: jax.Array) -> int:
        """The place of an array among the outputs."""
        if id(array) not in self._places:
            self._places[id(array)] = len(self.arrays)
            self.arrays.append(array)
        return self._places[id(array)]


@dataclass(frozen=True)
class _Handed:
    """Facts about a body's outputs, from its trace.

    Attributes:
        nodes: by result: the places of its arrays, in the structure that the op gives them.
        histories: by history: the same.
        left: by call: its arity, the pullback's structure, and for every leaf its place, or the leaf where layers share it.
        checks: what the checks in the body require.
    """

    nodes: list[Any] = field(default_factory=list)
    histories: list[Any] = field(default_factory=list)
    left: list[tuple[int, Any, list[_Leaf]]] = field(default_factory=list)
    checks: list[Check | StepCheck] = field(default_factory=list)


@dataclass(frozen=True)
class _Same:
    """A leaf of a pullback that is the same for all layers."""

    value: Any


@dataclass(frozen=True)
class _Input:
    """A leaf of a pullback that is one of the values that each layer takes, by its number."""

    number: int


_Leaf = int | _Same | _Input


def run_loop(loop: LayerLoop, values: Values, context: LoweringContext) -> None:
    """Run a loop over layers.

    Args:
        loop: the layers.
        values: those of the graph so far; what the loop gives is added, as rows.
        context: that of the program.
    """
    size = len(loop.layers)
    body = _Body(loop, {node: values[node] for node in loop.shared}, context)
    layered = [values.stacked(nodes) for nodes in loop.layered]
    taken, structures = _taken(loop, context.stash)
    body.structures = structures
    initial = [ordinary(values[one.initial]) for one in loop.carried]
    final, stacked = counted_scan(body, initial, (layered, taken, loop.draws()), size, reverse=loop.reverse)
    handed = body.handed
    stacks, given = ([Stack(array, size) for array in some] for some in (stacked, layered))
    for position, places in zip(loop.results, handed.nodes, strict=True):
        stack = _as_stack(places, stacks, size)
        for layer, nodes in enumerate(loop.layers):
            values[nodes[position]] = Row(stack, layer)
    for number, places in zip(loop.histories, handed.histories, strict=True):
        values.know(loop.history(loop.carried[number]), _as_stack(places, stacks, size))
    for one, value in zip(loop.carried, final, strict=True):
        values[loop.last(one.position)] = value
    for calls, (arity, structure, leaves) in zip(loop.left, handed.left, strict=True):
        for layer, call in enumerate(calls):
            context.stash.keep(call, Left(arity, tuple(_of_layer(leaf, layer, stacks, given) for leaf in leaves), structure))
    first = len(stacked) - len(handed.checks)
    for words, check in zip(stacked[first:], handed.checks, strict=True):
        context.checks.add_layers(words, check)


def _as_stack(places: Any, stacks: Sequence[Stack], size: int) -> Stack:
    """The stack of a value, of which the places of its arrays are known; arrays that loops share stay one object."""
    return stacks[places] if isinstance(places, int) else Stack(jax.tree.map(lambda at: stacks[at].arrays, places), size)


def _of_layer(leaf: _Leaf, layer: int, stacks: Sequence[Stack], given: Sequence[Stack]) -> Any:
    if isinstance(leaf, _Same):
        return leaf.value
    return Row(stacks[leaf] if isinstance(leaf, int) else given[leaf.number], layer)


def _taken(loop: LayerLoop, stash: Stash) -> tuple[list[list[Any]], list[tuple[int, Any, Mapping[int, Any]]]]:
    """Leavings of calls outside for each layer, stacked, and what all layers share of them."""
    stacked: list[list[Any]] = []
    structures: list[tuple[int, Any, Mapping[int, Any]]] = []
    for calls in loop.taken:
        lefts = [left for call in calls if (left := stash.get(call)) is not None]
        assert len(lefts) == len(calls), "a loop takes what a call before it has left"
        columns = list(zip(*[left.leaves for left in lefts], strict=True))
        same = {at: alone(leaves[0]) for at, leaves in enumerate(columns) if all(leaf is leaves[0] for leaf in leaves)}
        stacked.append([stack_of(leaves) for at, leaves in enumerate(columns) if at not in same])
        structures.append((lefts[0].arity, lefts[0].structure, same))
    return stacked, structures


_Rows = tuple[Sequence[Any], Sequence[Sequence[Any]], jax.Array]
"""By layer: what each takes, what calls outside have left for it, and the numbers of its random ops."""


class _Body:
    """One layer: from what the layer before it gives, and what it takes itself, to what it gives on and hands out.

    Args:
        loop: the layers.
        shared: values that all layers take.
        context: that of the program.
    """

    def __init__(self, loop: LayerLoop, shared: Mapping[fx.Node, Any], context: LoweringContext) -> None:
        self._loop = loop
        self._shared = shared
        self._context = context
        self._nodes = loop.layers[loop.model]
        self.structures: Sequence[tuple[int, Any, Mapping[int, Any]]] = ()
        self.handed = _Handed()

    def __call__(self, carry: Sequence[jax.Array], inputs: _Rows) -> Any:
        loop, (layered, taken, draws) = self._loop, inputs
        values: dict[fx.Node, Any] = dict(self._shared)
        values |= {nodes[loop.model]: value for nodes, value in zip(loop.layered, layered, strict=True)}
        values |= {one.source: value for one, value in zip(loop.carried, carry, strict=True)}
        drawing = [node for node in self._nodes if "draw" in node.meta]
        numbers = {node: draws[at] for at, node in enumerate(drawing)}
        context = replace(
            self._context, stash=self._stash(taken), checks=Checks(), gathered={}, draws=numbers, names=loop.names
        )
        outside: dict[int, _Same | _Input] = {id(value): _Same(value) for value in self._shared.values()}
        outside |= {id(value): _Input(number) for number, value in enumerate(layered)}
        with lowering_context(context):
            for node in self._nodes:
                values[node] = evaluate(node, values, context)
        return [ordinary(values[self._nodes[one.position]]) for one in loop.carried], self._outputs(values, context, outside)

    def _stash(self, taken: Sequence[Sequence[Any]]) -> Stash:
        """The pullbacks that calls outside have left for this layer."""
        stash = Stash()
        for calls, rows, (arity, structure, same) in zip(self._loop.taken, taken, self.structures, strict=True):
            own = iter(rows)
            leaves = [same[at] if at in same else next(own) for at in range(structure.num_leaves)]
            stash.keep(calls[self._loop.model], Left(arity, tuple(leaves), structure))
        return stash

    def _outputs(
        self, values: Mapping[fx.Node, Any], context: LoweringContext, outside: Mapping[int, _Same | _Input]
    ) -> list[jax.Array]:
        self.handed, outputs = _Handed(), _Outputs()
        for position in self._loop.results:
            value = ordinary(values[self._nodes[position]])
            self.handed.nodes.append(jax.tree.map(outputs.add, value))
        for number in self._loop.histories:
            self.handed.histories.append(jax.tree.map(outputs.add, values[self._loop.carried[number].source]))
        for calls in self._loop.left:
            left = context.stash.get(calls[self._loop.model])
            assert left is not None, "a call whose gradient stands outside has left its pullback"
            places: list[_Leaf] = [_known(leaf, outside) or outputs.add(leaf) for leaf in left.leaves]
            self.handed.left.append((left.arity, left.structure, places))
        self.handed.checks.extend(context.checks.made)
        return [*outputs.arrays, *context.checks.words]


def _known(leaf: object, outside: Mapping[int, _Same | _Input]) -> _Same | _Input | None:
    """A leaf of a pullback that the loop need not hand out: one that came from outside."""
    return outside.get(id(leaf)) if isinstance(leaf, jax.Array) else _Same(leaf)
