"""Functions in activations that a backward pass computes again, in graphs for TPU, in place of reading them from memory.

An activation that is written as a formula, GPT-2's `0.5 * x * (1 + tanh(...))` say, keeps its `tanh` for the backward pass,
beside the product `x`, which is kept as well: XLA does not compute a function again that it takes for expensive. PyTorch's own
activations, as `F.gelu`, keep their input alone.

The activation's result, which the gradient of the next weight takes, is left in memory: of 12 layers of GPT-2 the compiler
writes it once more, 118.6 M predicted cycles are 123.1 then (5.90 GB are 5.43, and before 124.5 and 6.50).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..lowering import BACKWARD, is_backward
from ._rewrites import VIEWS, copy_of
from ._shared_gradients import in_memory

aten = torch.ops.aten

# what XLA computes once, for all that read it; others it computes again in each loop
_FUNCTIONS = frozenset({aten.tanh.default, aten.sigmoid.default, aten.exp.default, aten.erf.default})
_FEWEST_NUMBERS = 2**16
# operations from the product to the value: some dozen are next to nothing beside reading two bytes
_MOST_OPERATIONS = 16


def with_activations_again(graph: fx.Graph) -> fx.Graph:
    """A copy of `graph` whose backward pass computes activations from what they came from; the graph itself without such."""
    if not _formulas(graph):
        return graph
    copy = copy_of(graph)
    places = {node: number for number, node in enumerate(copy.nodes)}
    for value, (source, operations) in _formulas(copy).items():
        users = [user for user in value.users if is_backward(user)]
        with copy.inserting_before(min(users, key=places.__getitem__)):
            again = {source: in_memory(copy, source)}
            for one in sorted(operations, key=places.__getitem__):
                again[one] = copy.node_copy(one, lambda given, again=again: again.get(given, given))
        for made in again.values():
            made.meta = {**made.meta, BACKWARD: True}
        value.replace_all_uses_with(again[value], delete_user_cb=lambda user, users=users: user in users)
    return copy


def _formulas(graph: fx.Graph) -> dict[fx.Node, tuple[fx.Node, set[fx.Node]]]:
    """Functions that a backward pass reads, each with what it is computed from and the operations between."""
    found: dict[fx.Node, tuple[fx.Node, set[fx.Node]]] = {}
    for node in graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.numel() < _FEWEST_NUMBERS or not _is_kept(node) or is_backward(node):
            continue
        operations, sources = _path(node) if node.target in _FUNCTIONS else (set(), set())
        if len(sources) == 1:
            (source,) = sources
            if _is_no_wider(source, value):
                found[node] = source, operations
    return found


def _is_kept(node: fx.Node) -> bool:
    return any(is_backward(user) for user in node.users)


def _is_no_wider(source: fx.Node, value: torch.Tensor) -> bool:
    """Whether a value's source costs no memory in its place: it is narrower, or is there for other readers anyway."""
    given = source.meta.get("val")
    if not isinstance(given, torch.Tensor) or given.numel() != value.numel():
        return False
    return given.itemsize < value.itemsize or (
        given.itemsize == value.itemsize and any(_is_kept(one) for one in [source, *_same_numbers_as(source)])
    )


def _same_numbers_as(node: fx.Node) -> Iterator[fx.Node]:
    """A value in other shapes and dtypes, in which a backward pass may read it."""
    for user in node.users:
        if user.target in VIEWS or user.target is aten._to_copy.default:
            yield user
            yield from _same_numbers_as(user)


def _path(node: fx.Node) -> tuple[set[fx.Node], set[fx.Node]]:
    """The operations on single numbers that a value is computed by, and what they begin with; none where they are many."""
    operations, sources, waiting = set[fx.Node](), set[fx.Node](), [node]
    while waiting:
        one = waiting.pop()
        if not _is_of_single_numbers(one):
            sources.add(one)
        elif one not in operations:
            operations.add(one)
            waiting += one.all_input_nodes
        if len(operations) > _MOST_OPERATIONS:
            return set(), set()
    return operations, sources


def _is_of_single_numbers(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, OpOverload) and (target is aten._to_copy.default or torch.Tag.pointwise in target.tags)
