"""Bytes that a step keeps of its forward pass for the backward pass, and work that it does a second time."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..kernels import not_before
from ..lowering import OPTIMIZER, RECOMPUTED, SCOPE, is_backward
from ._flops import node_flops
from ._held_back import of_state_alone
from ._isomorphic import is_view


@dataclass(frozen=True)
class Activations:
    """Values that a captured step keeps and computes again, over the whole batch.

    Attributes:
        kept: bytes of values of the forward pass that the backward pass uses; what views share counts once. A compiler keeps
            less where it computes pointwise values again, and more where a kernel leaves something for its gradient.
        again_flops: of products that are computed once more.
        again_bytes: bytes of the values that are.
    """

    kept: int
    again_flops: int
    again_bytes: int


def activations(graph: fx.Graph, state: Set[fx.Node]) -> Activations:
    """Count them in a captured graph.

    Args:
        graph: functional ops with their results in `meta["val"]`.
        state: placeholders of the state, which is there all the time.
    """
    always = of_state_alone(graph, state)
    forward = [node for node in graph.nodes if _is_forward(node) and node not in always]
    kept = {_owner(node) for node in forward if any(is_backward(user) for user in node.users)}
    again = [node for node in graph.nodes if node.op == "call_function" and RECOMPUTED in node.meta and not is_view(node)]
    again = [node for node in again if isinstance(node.target, OpOverload) and node.target is not not_before]
    return Activations(
        kept=sum(_bytes(node) for node in kept if node in {*forward}),
        again_flops=sum(node_flops(node) for node in again),
        again_bytes=sum(_bytes(node) for node in again),
    )


def _is_forward(node: fx.Node) -> bool:
    return node.op == "call_function" and node.meta.get(SCOPE) != OPTIMIZER and not is_backward(node)


def _owner(node: fx.Node) -> fx.Node:
    """The value whose memory a view looks at."""
    while is_view(node) and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return node


def _bytes(node: fx.Node) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(node.meta.get("val")))


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
