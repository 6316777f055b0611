"""Gradients that several products take, in graphs for TPU: computed once, and not in each of the products.

The gradient of a layer's result is multiplied twice, for its inputs and for its weight. Where arithmetic comes before (the
derivative of an activation, a gate), XLA's TPU compiler does it inside of each product. There it is done again for every tile
of the other operand, and its operands take the vector memory that larger tiles would need: a product of Llama's MLP, 8,192 x
2,048 for 4,096 tokens, takes 2.4 M cycles of a v5e so, and 1.1 M with the gradient as it is. Once it has to be in memory, the
compiler writes it with the product that comes before.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..lowering import is_backward, lowers
from ..lowering._channels_last import Value, array_of, held_like, takes_channels_last
from ._rewrites import VIEWS, copy_of

aten = torch.ops.aten

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("in_memory(Tensor value) -> Tensor")
_IN_MEMORY = torch.ops.systolic.in_memory.default

_PRODUCTS = frozenset({
    "mm", "bmm", "addmm", "baddbmm", "project_heads", "heads_mm", "heads_outer", "outer_heads", "images_outer",
})  # fmt: skip
"""PyTorch's products, and those that other passes make of them."""

_MOVES = frozenset({
    *VIEWS, aten.t.default, aten.transpose.int, aten.permute.default, aten.clone.default, aten.expand.default,
    aten.unsqueeze.default, aten.squeeze.dim,
})  # fmt: skip
"""The same numbers, in another order or shape."""


def with_shared_gradients(graph: fx.Graph) -> fx.Graph:
    """A copy of `graph` in which gradients that several products take are in memory before; the graph itself without such."""
    if not any(_is_shared(node) for node in graph.nodes):
        return graph
    copy = copy_of(graph)
    for node in [node for node in copy.nodes if _is_shared(node)]:
        with copy.inserting_after(node):
            kept = in_memory(copy, node)
        node.replace_all_uses_with(kept, delete_user_cb=lambda user, kept=kept: user is not kept)
    return copy


def in_memory(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """A node's value, which is in memory for those that read it there: XLA does not compute it again in them."""
    kept = graph.call_function(_IN_MEMORY, (node,))
    kept.meta = dict(node.meta)
    return kept


def _is_shared(node: fx.Node) -> bool:
    if not isinstance(node.target, OpOverload) or not is_backward(node) or node.target in _MOVES:
        return False
    if torch.Tag.pointwise not in node.target.tags:
        return False
    value = node.meta.get("val")
    # of float32 operands products take rounded copies, which would be in memory beside them
    if not isinstance(value, torch.Tensor) or value.dtype != torch.bfloat16:
        return False
    users = set(_users_of(node))
    # where a bias takes its sum as well, the compiler makes all three in one go (two layers of BERT on v6e: 10.40 M cycles,
    # and 10.68 with its gradients in memory)
    return len(users) > 1 and all(_is_product(user) for user in users)


def _users_of(node: fx.Node) -> Iterator[fx.Node]:
    """Ops that take a value, as it is or moved."""
    for user in node.users:
        if user.target in _MOVES:
            yield from _users_of(user)
        else:
            yield user


def _is_product(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target.overloadpacket.__name__ in _PRODUCTS


@lowers(_IN_MEMORY)
@takes_channels_last
def _in_memory(value: Value) -> Value:
    return held_like(jax.lax.optimization_barrier(array_of(value)), value)
