"""Keep XLA from computing once what a graph computes twice to save memory.

XLA merges equal computations, and would keep the first one's results for the second. The second one therefore gets its inputs
through a barrier, behind which they look like other values, and which opens only when the gradient of its results is there.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Iterable, Mapping, Sequence

import torch
from torch import fx

from ..kernels import not_before
from ..lowering import BACKWARD, RECOMPUTED, SCOPE, is_backward


def hold_back_recomputations(graph: fx.Graph, state: Container[fx.Node]) -> None:
    """Put a barrier before every region that activation checkpointing computes once more.

    Args:
        graph: as it was traced.
        state: placeholders of the state, which are there all the time: what is computed of them alone is computed once.
    """
    regions: dict[int, list[fx.Node]] = {}
    for node in graph.nodes:
        if RECOMPUTED in node.meta:
            regions.setdefault(node.meta[RECOMPUTED], []).append(node)
    if not regions:
        return
    places = {node: place for place, node in enumerate(graph.nodes)}
    always = of_state_alone(graph, state)
    for nodes in regions.values():
        hold_back(graph, nodes, always, [node for node in _arrived(nodes, places) if node not in always])


def of_state_alone(graph: fx.Graph, state: Container[fx.Node]) -> set[fx.Node]:
    """Values that are there without the batch: to compute them again would save nothing, for XLA merges the two."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        draws = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        computed = node.op == "call_function" and not draws and all(source in found for source in node.all_input_nodes)
        if node in state or computed:
            found.add(node)
    return found


def _arrived(nodes: Sequence[fx.Node], places: Mapping[fx.Node, int]) -> list[fx.Node]:
    """Gradients that were there when a region was computed once more, and for which it was."""
    inside, start = set(nodes), places[nodes[0]]
    users = {user for node in nodes for user in node.users if user not in inside}
    # nodes that were put in since have no place: they belong to other regions
    before = [s for user in users for s in user.all_input_nodes if places.get(s, start) < start and is_gradient(s)]
    return sorted(set(before), key=places.__getitem__)


def is_gradient(node: fx.Node) -> bool:
    """Whether a node is a tensor that a backward pass computed, and not a forward computed once more."""
    return isinstance(node.meta.get("val"), torch.Tensor) and is_backward(node) and RECOMPUTED not in node.meta


def hold_back(
    graph: fx.Graph, nodes: Sequence[fx.Node], always: Container[fx.Node], gradients: Iterable[fx.Node]
) -> fx.Node | None:
    """Let ops take their inputs from behind a barrier.

    Args:
        graph: is changed.
        nodes: a region, in the order of the graph.
        always: what is taken as it is.
        gradients: what has to be there first; they stand before the region.

    Returns:
        The barrier; None where the region has no other inputs.
    """
    inside = set(nodes)
    inputs = dict.fromkeys(s for node in nodes for s in node.all_input_nodes if s not in inside and s not in always)
    values = [source for source in inputs if isinstance(source.meta.get("val"), torch.Tensor)]
    if not values:
        return None
    about = {BACKWARD: True, RECOMPUTED: nodes[0].meta[RECOMPUTED], SCOPE: nodes[0].meta.get(SCOPE, "")}
    with graph.inserting_before(nodes[0]):
        barrier = graph.call_function(not_before, (values, list(gradients)))
        barrier.meta = about | {"val": [value.meta["val"] for value in values]}
        for number, value in enumerate(values):
            held = graph.call_function(operator.getitem, (barrier, number))
            held.meta = about | {"val": value.meta["val"]}
            for node in nodes:
                node.replace_input_with(value, held)
    return barrier
