"""Graphs for TPU multiply images [batch, height, width, features] in their own dimensions, and give the same."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import gradients_of, some
from torch import fx, nn

import systolic
from systolic.compiler.lowering import LoweringContext, interpret
from systolic.compiler.passes import with_images_in_place


class Block(nn.Module):
    """A layer of ConvNeXt."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(6, 6, 3, padding=1, groups=6), nn.LayerNorm(6)
        self.up, self.down = nn.Linear(6, 10, bias=bias), nn.Linear(10, 6, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(h))).permute(0, 3, 1, 2)


def matrices(graph: fx.Graph) -> list[tuple[int, ...]]:
    """Left operands of all products that are matrices."""
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    left = [node.args[-2].meta["val"] for node in graph.nodes if node.target in products]  # type: ignore[union-attr]
    return [tuple(value.shape) for value in left if value.dim() == 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_images_keep_their_dimensions(bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = Block(bias).to(dtype)
    compiled = systolic.jit(gradients_of(module, module))
    compiled([True], torch.randn(2, 6, 4, 5, dtype=dtype))
    graph = compiled.graph()
    changed = with_images_in_place(graph)
    assert len(matrices(graph)) == 6, "two products, and two gradients of each"
    assert not matrices(changed)
    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        inputs = [some(draw, node.meta["val"]) for node in graph.nodes if node.op == "placeholder"]
        results = [interpret(g, inputs, LoweringContext()) for g in (graph, changed)]
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    for want, got in zip(*results, strict=True):
        assert (want.shape, want.dtype) == (got.shape, got.dtype)
        np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), rtol=tolerance, atol=tolerance)


def test_rows_of_anything_else_stay_a_matrix() -> None:
    """A batch of sequences, and images that are flattened."""
    module = nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, 3))
    compiled = systolic.jit(gradients_of(module, module))
    compiled([True], torch.randn(2, 4, 6))
    assert with_images_in_place(compiled.graph()) is compiled.graph()
