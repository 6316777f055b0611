"""Graphs of the programs that run before a step's own: they give the arguments of functions of the host."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from torch import fx

from ...utilities._torch_internals import tree_flatten
from ..capture import Captured, HostPart, OutputTree, SlotInput, output_numbers
from ..passes import drop_unused, needed_for
from ._layout import outputs_of


def argument_graphs(captured: Captured) -> list[tuple[Captured, Sequence[HostPart]]]:
    """For calls of the host that follow each other and take nothing of each other: what computes their arguments.

    Each has the questions, too, that the step asks before them.
    """
    return [(_arguments_of(captured, parts), parts) for parts in _runs(captured)]


def _runs(captured: Captured) -> Iterator[list[HostPart]]:
    """Calls in their order, in as few pieces as possible: one that needs the result of another begins a new one."""
    placeholders = [node for node in captured.graph.nodes if node.op == "placeholder"]
    tensors = [None if isinstance(one, SlotInput) else one.constant for one in captured.inputs]
    node_of = {id(tensor): node for tensor, node in zip(tensors, placeholders, strict=False) if tensor is not None}
    run: list[HostPart] = []
    given: set[fx.Node] = set()
    for part in captured.parts:
        if given & _needed(captured, [part]):
            yield run
            run, given = [], set()
        run.append(part)
        given.update(node_of[id(tensor)] for tensor in part.tensors if id(tensor) in node_of)
    if run:
        yield run


def _wanted(captured: Captured, parts: Sequence[HostPart]) -> set[int]:
    """The outputs that are arguments, or are asked for before."""
    wanted = {index for part in parts for leaf in part.arguments.leaves for index in output_numbers(leaf)}
    return wanted.union(*(one.outputs for one in captured.speculations[: parts[-1].asked]))


def _needed(captured: Captured, parts: Sequence[HostPart]) -> set[fx.Node]:
    outputs = outputs_of(captured.graph)
    return needed_for(outputs[index] for index in _wanted(captured, parts))


def _arguments_of(captured: Captured, parts: Sequence[HostPart]) -> Captured:
    """The step cut down to the arguments of some calls: it changes nothing."""
    wanted, graph = _wanted(captured, parts), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for node in captured.graph.nodes:
        if node.op != "output":
            copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = enumerate(outputs_of(captured.graph))
    graph.output(tuple(copies.get(one, one) if index in wanted else None for index, one in outputs))
    drop_unused(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    inputs = []
    for source, node in zip(captured.inputs, placeholders, strict=False):  # numbers follow, and stay
        if node.users:
            inputs.append(source)
        else:
            graph.erase_node(node)
    leaves = tuple(leaf for part in parts for leaf in part.arguments.leaves)
    return dataclasses.replace(
        captured,
        graph=graph,
        inputs=inputs,
        slot_outputs={},
        result=OutputTree(leaves, tree_flatten([0] * len(leaves))[1]),
        effects=[],
        speculations=captured.speculations[: parts[-1].asked],
        parts=(),
        digest="",
        as_traced=None,
    )
