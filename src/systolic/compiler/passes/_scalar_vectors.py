"""Scalars that are computed alike for every parameter, as one vector, in programs for CPUs.

Optimizers keep a count of steps for each parameter, and compute bias corrections of it: three or four operations on single
numbers, each of which becomes a kernel of its own, to be compiled and started. In a network of 250 parameters these are most of
a program's kernels. The counts may differ (a parameter without a gradient is not counted), so that they cannot be one number.

A TPU's core computes such scalars beside its vectors, and taking them out of a vector again would cost it more: the step of
examples/digits.py is estimated at 49,158 cycles without, and at 56,478 with this (libtpu 0.0.42.1, v5litepod-8).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import fx
from torch.fx.node import Argument

from ...utilities._torch_internals import OpOverload, is_tagged_pointwise
from ._rewrites import copy_of, drop_unused

aten = torch.ops.aten

# of fewer numbers a vector saves no more kernels than gathering and dividing it cost
_FEWEST = 4

Members = dict[fx.Node, fx.Node]
"""Nodes that compute the same of one scalar each, by that scalar."""


def with_scalars_in_vectors(graph: fx.Graph) -> fx.Graph:
    """A copy of `graph` in which equal chains of operations on scalars are one on a vector; the graph itself without such."""
    if not _alike(graph):
        return graph
    copy = copy_of(graph)
    for scalars in _alike(copy):
        _join(copy, scalars)
    drop_unused(copy)
    return copy


def _alike(graph: fx.Graph) -> list[list[fx.Node]]:
    """Scalar inputs of the graph, grouped by what is computed of them."""
    by_first: dict[Hashable, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op == "placeholder" and _is_scalar(node):
            operations = {_operation(user, {node: None}) for user in node.users if _is_pointwise(user)}
            by_first[frozenset(operations - {None})].append(node)
    # others are shared, as a learning rate in a tensor is
    many = [nodes for operations, nodes in by_first.items() if operations and len(nodes) >= _FEWEST]
    computed: dict[fx.Node, set[Hashable]] = {node: set() for nodes in many for node in nodes}
    for operation, members in _chains(graph, computed).items():
        for scalar in members:
            computed[scalar].add(operation)
    groups: dict[Hashable, list[fx.Node]] = defaultdict(list)
    for scalar, operations in computed.items():
        groups[frozenset(operations)].append(scalar)
    return [scalars for scalars in groups.values() if len(scalars) >= _FEWEST]


def _chains(graph: fx.Graph, scalars: Iterable[fx.Node]) -> dict[Hashable, Members]:
    """Nodes that depend on one of these scalars and on nothing else that differs between them, in the graph's order."""
    found: dict[Hashable, Members] = {}
    numbers: dict[Hashable, int] = {}  # in place of operations nested in each other, whose hashes take ever longer
    known: dict[fx.Node, tuple[int | None, fx.Node]] = {scalar: (None, scalar) for scalar in scalars}
    for node in graph.nodes:
        sources = {known[source][1] for source in node.all_input_nodes if source in known}
        if len(sources) == 1 and _is_pointwise(node):
            [scalar] = sources
            operation = _operation(node, {source: known[source][0] for source in node.all_input_nodes if source in known})
            if operation is not None and scalar not in found.setdefault(operation, {}):
                found[operation][scalar] = node
                known[node] = numbers.setdefault(operation, len(numbers)), scalar
    return found


def _is_scalar(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 0


def _is_pointwise(node: fx.Node) -> bool:
    """Whether an op computes each number of its result from those at the same place, and gives one number here."""
    return isinstance(node.target, OpOverload) and _is_scalar(node) and is_tagged_pointwise(node.target)


def _operation(node: fx.Node, scalars: Mapping[fx.Node, int | None]) -> Hashable:
    """An op with its arguments, in which those of `scalars` stand for others; None for arguments in lists."""
    arguments = [*enumerate(node.args), *node.kwargs.items()]
    if any(isinstance(argument, (list, tuple, dict)) for _, argument in arguments):
        return None
    return node.target, tuple((place, _name(argument, scalars)) for place, argument in arguments)


def _name(argument: Argument, scalars: Mapping[fx.Node, int | None]) -> Hashable:
    if isinstance(argument, fx.Node):
        return ("each", scalars[argument]) if argument in scalars else argument
    return type(argument), repr(argument)  # 1 and True are equal, and so are 0.0 and -0.0


def _join(graph: fx.Graph, scalars: list[fx.Node]) -> None:
    """Compute chains of these scalars on one vector; their nodes stay for the clean-up."""
    with graph.inserting_before(next(node for node in graph.nodes if node.op != "placeholder")):
        stacked = graph.call_function(aten.stack.default, (scalars,))
    stacked.meta = _vector_meta(scalars[0], len(scalars))
    chains = [members for members in _chains(graph, scalars).values() if len(members) == len(scalars)]
    joined = {member for members in chains for member in members.values()}
    vectors: dict[fx.Node, fx.Node] = dict.fromkeys(scalars, stacked)
    for members in chains:
        first = next(iter(members.values()))
        with graph.inserting_before(first):
            vector = graph.node_copy(first, lambda source: vectors.get(source, source))
            vector.meta = _vector_meta(first, len(scalars))
            for number, scalar in enumerate(scalars):
                member = members[scalar]
                vectors[member] = vector
                one = graph.call_function(aten.select.int, (vector, 0, number))
                one.meta = dict(member.meta)
                member.replace_all_uses_with(one, lambda user: user not in joined)


def _vector_meta(node: fx.Node, length: int) -> dict[str, Any]:
    return {**node.meta, "val": node.meta["val"].new_empty((length,))}
