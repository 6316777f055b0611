"""Find repeated layers in a graph, and make a loop of each run of them.

Layers become a loop only where they are the same, node for node: op, static arguments, shapes, dtypes, and where values lie.
What each takes from outside is either the same node for all, or one for each layer, or what the layer before it gives.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence, Set

from torch import fx

from ..lowering import Call, Carried, LayerLoop, ValuePlacement
from ._computed_again import Place, computing_again
from ._isomorphic import Alike, Nodes, alike, form, is_view, kind, lies, put_by, taken_by
from ._layer_members import DEEPEST, LEAST, Visit, runs, visits


def layer_loops(graph: fx.Graph, state: Set[fx.Node], placement: ValuePlacement | None) -> list[LayerLoop]:
    """Loops over layers, those of the forward pass first; empty where no layers repeat.

    Args:
        graph: what is lowered.
        state: placeholders of the state.
        placement: how values lie on the mesh.
    """
    return _Finder(graph, state, placement).loops()


class _Finder:
    def __init__(self, graph: fx.Graph, state: Set[fx.Node], placement: ValuePlacement | None) -> None:
        self._graph = graph
        self._placement = placement
        self._order = {node: place for place, node in enumerate(graph.nodes)}
        self._of_state = _of_state(graph, state)
        self._places: dict[fx.Node, Place] = {}
        self._used: set[fx.Node] = set()
        self._left: set[Call] = set()
        self._takers: dict[Call, list[fx.Node]] = {}
        for node in graph.nodes:
            call = taken_by(node)
            if call is not None:
                self._takers.setdefault(call, []).append(node)

    def loops(self) -> list[LayerLoop]:
        """Every loop of the graph."""
        return [*self._of_pass(backward=False), *self._of_pass(backward=True)]

    def _of_pass(self, backward: bool) -> Iterator[LayerLoop]:
        own = [node for node in self._graph.nodes if node.op == "call_function" and node not in self._of_state]
        for depth in range(DEEPEST):
            for visit in visits([node for node in own if node not in self._used], depth):
                if visit.backward == backward:
                    yield from self._of_visit(visit)

    def _of_visit(self, visit: Visit) -> Iterator[LayerLoop]:
        numbers = list(visit.members)
        for run in runs([form(nodes, self._placement) for nodes in visit.members.values()]):
            layers = [numbers[run.start + at * run.period :][: run.period] for at in range(run.count)]
            whole = self._loop(visit, layers)
            # where not all of them follow each other in one way, those that do
            found = (
                [whole] if whole is not None else [self._loop(visit, layers[some]) for some in self._following(visit, layers)]
            )
            for loop in found:
                if loop is not None:
                    self._accept(loop)
                    yield loop

    def _following(self, visit: Visit, layers: Sequence[Sequence[int]]) -> Iterator[slice]:
        """Spans of layers of which any `LEAST` that follow each other would make a loop."""
        fits = [self._loop(visit, layers[at : at + LEAST]) is not None for at in range(len(layers) - LEAST + 1)]
        at = 0
        while at < len(fits):
            end = at
            while end < len(fits) and fits[end]:
                end += 1
            if end > at:
                yield slice(at, end + LEAST - 1)
            # the layers of one loop are not those of the next
            at = end + LEAST - 1 if end > at else at + 1

    def _accept(self, loop: LayerLoop) -> None:
        self._used |= loop.own
        self._left |= {call for calls in loop.left for call in calls}
        for layer, nodes in enumerate(loop.layers):
            self._places |= {node: (loop, layer, position) for position, node in enumerate(nodes) if node in loop.own}

    def _loop(self, visit: Visit, numbers: Sequence[Sequence[int]]) -> LayerLoop | None:
        """The loop of some layers; None where they make none."""
        parts = [self._sorted(node for number in layer for node in visit.members[number]) for layer in numbers]
        own = {node for nodes in parts for node in nodes}
        found = alike([self._with_views(nodes) for nodes in parts], self._placement)
        if found is not None and visit.backward:
            found = alike(computing_again(found, self._places), self._placement) or found
        loop = None if found is None or not self._has_pullbacks(found) else self._made(found, own, visit, numbers)
        return None if loop is None or self._leads_back(loop) else loop

    def _with_views(self, nodes: Nodes) -> Nodes:
        """A part with the views of the state that it takes: cut out of a loop, they would be copies of the weights."""
        found, waiting = set[fx.Node](), list(nodes)
        while waiting:
            for source in waiting.pop().all_input_nodes:
                if source in self._of_state and source not in found and _is_view(source):
                    found.add(source)
                    waiting.append(source)
        return (*self._sorted(found), *nodes)

    def _sorted(self, nodes: Iterable[fx.Node]) -> Nodes:
        return tuple(sorted(nodes, key=self._order.__getitem__))

    def _has_pullbacks(self, found: Alike) -> bool:
        """Whether all that is taken of calls outside was left by a loop; left by calls alone, it would have no common form."""
        return all(call in self._left for calls in found.calls for call in calls)

    def _made(self, found: Alike, own: Set[fx.Node], visit: Visit, numbers: Sequence[Sequence[int]]) -> LayerLoop | None:
        for reverse in (visit.backward, not visit.backward):
            inputs = _classified(found, reverse, self._placement)
            if inputs is None:
                continue
            model = len(found.parts) - 2 if reverse else 1
            name = f"{visit.path}.{numbers[0][0]}-{numbers[-1][-1]}"
            names = {f"{visit.path}.{number}": name for number in numbers[model]}
            return LayerLoop(
                found.parts, model, reverse, *inputs, tuple(self._calls_left(found, own)), found.calls, names, frozenset(own)
            )
        return None

    def _calls_left(self, found: Alike, own: Set[fx.Node]) -> Iterator[tuple[Call, ...]]:
        for nodes in zip(*found.parts, strict=True):
            calls = [call for node in nodes if node in own and (call := put_by(node)) is not None]
            if len(calls) != len(nodes):
                continue
            users = [(set(part), self._takers.get(call, ())) for part, call in zip(found.parts, calls, strict=True)]
            if any(user not in part for part, takers in users for user in takers):
                yield tuple(calls)

    def _leads_back(self, loop: LayerLoop) -> bool:
        """Whether the loop takes something that needs a part of it first."""
        later, waiting = set[fx.Node](), list(loop.own)
        while waiting:
            node = waiting.pop()
            gradients = self._takers.get(call, ()) if (call := put_by(node)) is not None else ()
            for user in (*node.users, *gradients):
                if user not in loop.own and user not in later:
                    later.add(user)
                    waiting.append(user)
        return any(node in later for node in loop.inputs())


Inputs = tuple[Nodes, tuple[Nodes, ...], tuple[Carried, ...]]


def _classified(found: Alike, reverse: bool, placement: ValuePlacement | None) -> Inputs | None:
    """Inputs that all layers take, that each takes, and that go from layer to layer; None where something is neither."""
    shared, layered, carried = dict[fx.Node, None](), dict[Nodes, None](), list[Carried]()
    inside = {node for nodes in found.parts for node in nodes}
    places = [{node: place for place, node in enumerate(nodes)} for nodes in found.parts]
    size = len(found.parts)
    turns = range(size - 1, -1, -1) if reverse else range(size)
    for nodes in found.inputs:
        one = nodes[turns[1]]
        if nodes.count(one) == size and one not in inside:
            shared[one] = None
        elif not _is_tensor_everywhere(nodes, placement):
            return None
        elif not any(node in inside for node in nodes):
            layered[nodes] = None
        else:
            before = {places[earlier].get(nodes[later]) for earlier, later in zip(turns, turns[1:], strict=False)}
            position, initial = next(iter(before)), nodes[turns[0]]
            if len(before) != 1 or position is None or initial in inside:
                return None
            carried.append(Carried(one, initial, position))
    sources = [*shared, *(nodes[turns[1]] for nodes in layered), *(one.source for one in carried)]
    # the body finds its inputs by the nodes of one layer: each of them has to mean one thing
    return (tuple(shared), tuple(layered), tuple(carried)) if len(set(sources)) == len(sources) else None


def _is_tensor_everywhere(nodes: Nodes, placement: ValuePlacement | None) -> bool:
    kinds = {(kind(node), lies(node, placement)) for node in nodes}
    return len(kinds) == 1 and all(_holds_tensors(node.meta.get("val")) for node in nodes[:1])


def _holds_tensors(value: object) -> bool:
    return all(map(_holds_tensors, value)) if isinstance(value, list | tuple) else hasattr(value, "untyped_storage")


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return is_view(node)


def _of_state(graph: fx.Graph, state: Iterable[fx.Node]) -> set[fx.Node]:
    """Values that are computed of the state alone: casts and transposes of weights."""
    found, constant = set(state), set[fx.Node]()
    for node in graph.nodes:
        if node.op != "call_function" or "draw" in node.meta:
            continue
        sources = node.all_input_nodes
        if all(source in constant for source in sources):
            constant.add(node)
        elif all(source in found or source in constant for source in sources):
            found.add(node)
    return found
