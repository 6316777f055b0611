"""Whether a step's time goes into matrix products that a TPU's vector memory is small for."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import fx

from ._flops import node_flops

_JAX_CALL = torch.ops.systolic.jax_call.default
_PRODUCTS = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm, torch.ops.aten.baddbmm)


def has_large_products(
    graph: fx.Graph, batch: Collection[fx.Node], memory: int, *, batch_parts: int = 1, weight_parts: int = 1
) -> bool:
    """Whether most FLOPs of products and convolutions are of products both of whose operands are larger than `memory`.

    An operand that is smaller lies in vector memory as a whole and is read once. Where none is, tiles decide how often both are
    read.

    Args:
        graph: aten ops with their results' shapes in `meta["val"]`.
        batch: placeholders of the batch; what depends on them is divided into `batch_parts`.
        memory: bytes on one core.
        batch_parts: into how many parts the batch is divided.
        weight_parts: into how many parts what is no part of the batch is divided while it is multiplied.
    """
    split, large, total = set(batch), 0, 0
    for node in graph.nodes:
        if any(source in split for source in node.all_input_nodes):
            split.add(node)
        # attention's kernels have a limit of their own
        flops = 0 if node.target is _JAX_CALL else node_flops(node)
        total += flops
        if flops and node.target.overloadpacket in _PRODUCTS:
            operands = [
                source.meta["val"].nbytes // (batch_parts if source in split else weight_parts)
                for source in node.all_input_nodes
                if source.meta["val"].ndim > 1
            ]
            if min(operands) > memory:
                large += flops
    return 2 * large > total
