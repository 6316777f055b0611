"""An order in which a graph's nodes and its loops over layers are evaluated."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from torch import fx

from ..lowering import LayerLoop, LoopStep, inputs_of
from ._isomorphic import Nodes, put_by, taken_by


def layer_order(graph: fx.Graph, loops: Sequence[LayerLoop]) -> list[LoopStep]:
    """The graph's nodes, with loops in place of the layers in them.

    Loops that wait for each other cannot run: the last one of them is taken apart, until there are none.

    Args:
        graph: what is lowered.
        loops: as `layer_loops` finds them.
    """
    for size in range(len(loops), 0, -1):
        order = _Order(graph, loops[:size]).steps()
        if order is not None:
            return order
    return list(graph.nodes)


class _Order:
    def __init__(self, graph: fx.Graph, loops: Sequence[LayerLoop]) -> None:
        self._graph = graph
        self._places = {node: place for place, node in enumerate(graph.nodes)}
        self._owner: dict[fx.Node, LoopStep] = {}
        for loop in loops:
            for nodes in loop.layers:
                # what a backward loop computes again belongs to the forward loop
                self._owner |= {node: loop for node in nodes if node not in self._owner and node in loop.own}
        self._puts = {call: node for node in graph.nodes if (call := put_by(node)) is not None}

    def steps(self) -> list[LoopStep] | None:
        """Everything that the output needs, in order; None where loops wait for each other."""
        needs = self._needs()
        users: dict[LoopStep, list[LoopStep]] = {step: [] for step in needs}
        for step, sources in needs.items():
            for source in sources:
                users[source].append(step)
        waiting = {step: len(sources) for step, sources in needs.items()}
        ready = [(self._place(step), step) for step, count in waiting.items() if not count]
        heapq.heapify(ready)
        order: list[LoopStep] = []
        while ready:
            _, step = heapq.heappop(ready)
            order.append(step)
            for user in users[step]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (self._place(user), user))
        return list(self._with_results(order)) if len(order) == len(needs) else None

    def _needs(self) -> dict[LoopStep, set[LoopStep]]:
        """By step: the steps before it; of those that the output needs, and all placeholders."""
        last = next(iter(reversed(self._graph.nodes)))
        found: dict[LoopStep, set[LoopStep]] = {}
        waiting: list[LoopStep] = [last, *(node for node in self._graph.nodes if node.op == "placeholder")]
        while waiting:
            step = waiting.pop()
            if step not in found:
                found[step] = {self._owner.get(node, node) for node in self._taken(step)}
                waiting += found[step]
        return found

    def _taken(self, step: LoopStep) -> Iterator[fx.Node]:
        """Nodes of other steps that a step needs, those whose pullbacks it takes among them."""
        yield from inputs_of(step)
        if isinstance(step, LayerLoop):
            calls = [call for calls in step.taken for call in calls]
        else:
            calls = [call] if (call := taken_by(step)) is not None else []
        yield from (self._puts[call] for call in calls if call in self._puts)

    def _place(self, step: LoopStep) -> int:
        # a loop stands where the last of its layers would have ended
        return self._places[step] if isinstance(step, fx.Node) else max(self._places[nodes[-1]] for nodes in step.layers)

    def _with_results(self, order: Sequence[LoopStep]) -> Iterator[LoopStep]:
        loops = [step for step in order if isinstance(step, LayerLoop)]
        together = {nodes for loop in loops for nodes in loop.layered}
        histories = {loop.history(one) for loop in loops for one in loop.carried} & together
        wanted = {node for step in order for node in _alone(step, histories)}
        for step in order:
            yield _handing_out(step, wanted, histories) if isinstance(step, LayerLoop) else step


def _alone(step: LoopStep, histories: Set[Nodes]) -> Iterable[fx.Node]:
    """Nodes that a step takes, but for those that a loop before it hands over as a whole."""
    if not isinstance(step, LayerLoop):
        return step.all_input_nodes
    layered = (node for nodes in step.layered if nodes not in histories for node in nodes)
    return *step.shared, *layered, *(one.initial for one in step.carried)


def _handing_out(loop: LayerLoop, wanted: Set[fx.Node], histories: Set[Nodes]) -> LayerLoop:
    """A loop with what it has to hand out: what other steps take, but for the last layer's, with which the loop ends anyway."""
    ends = {loop.last(one.position) for one in loop.carried}
    results = [
        position
        for position in range(len(loop.layers[0]))
        if any(nodes[position] in wanted and nodes[position] in loop.own - ends for nodes in loop.layers)
    ]
    known = [number for number, one in enumerate(loop.carried) if loop.history(one) in histories]
    return replace(loop, results=tuple(results), histories=tuple(known))
