"""The matrix products and convolutions of a step's forward pass, as the user's layers have them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, fx

from ..compiler import LINE, SCOPE


@dataclass(frozen=True)
class Matmul:
    """One product: rows times a matrix of `k` x `n`.

    Attributes:
        module: path of the user's module.
        line: "file:line" of the user's code.
        dtype: of the operands.
        k: the dimension that is summed over; for a convolution, channels of the input.
        n: features of the output.
        flops: of this product, over all cores; its two products in backward have as many each.
    """

    module: str
    line: str
    dtype: torch.dtype
    k: int
    n: int
    flops: int


def products(graph: fx.Graph) -> Iterator[Matmul]:
    """The products of the forward pass, in order, without those in attention kernels and other JAX functions."""
    for node in graph.nodes:
        scope, line = node.meta.get(SCOPE, ""), node.meta.get(LINE, "")
        first = _FIRST_OPERAND.get(node.target)
        if first is None or not line or scope.startswith("backward"):
            continue
        left, right = (source.meta["val"] for source in node.args[first : first + 2])
        is_convolution = node.target is torch.ops.aten.convolution.default
        k, n, flops = _convolution(node, left, right) if is_convolution else _matrices(left, right)
        yield Matmul(scope, line, left.dtype, k, n, flops)


_FIRST_OPERAND = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.baddbmm.default: 1,
    torch.ops.aten.convolution.default: 0,
}


def _matrices(left: Tensor, right: Tensor) -> tuple[int, int, int]:
    k, n = right.shape[-2:]
    return k, n, 2 * left.numel() * n


def _convolution(node: fx.Node, left: Tensor, kernel: Tensor) -> tuple[int, int, int]:
    *_, transposed, _, groups = node.args
    assert isinstance(groups, int)
    # a transposed convolution does its kernel's work once for every pixel that it takes
    pixels = math.prod((left if transposed else node.meta["val"]).shape[2:])
    channels, features = left.shape[1] // groups, node.meta["val"].shape[1] // groups
    return channels, features, 2 * left.shape[0] * pixels * kernel.numel()
