"""Graphs for TPU compute attention's projections in the kernel's layout, and give the same."""

from __future__ import annotations

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import gradients_of, some
from torch import nn

import systolic
from systolic.compiler.lowering import LoweringContext, interpret
from systolic.compiler.passes._head_layout import _heads_sum, with_heads_in_place


class Joint(nn.Module):
    """One projection to queries, keys and values, as in GPT-2; the gradient of the result is a fourth."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36, bias=bias), nn.Linear(12, 12, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(2, 5, 3, 4).transpose(1, 2) for t in self.qkv(x).split(12, dim=2))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(h.transpose(1, 2).reshape(2, 5, 12))


class Cached(Joint):
    """As transformers' GPT-2 has it: keys and values joined to those of an empty cache, and a view that changes nothing."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.view(2, 5, 3, 4).transpose(1, 2) for t in self.qkv(x).split(12, dim=2))
        k, v = (torch.cat([torch.tensor([]), t], dim=-2) for t in (k, v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).view(2, -1, 5, 4)
        return self.out(h.transpose(1, 2).reshape(2, 5, 12))


class Separate(nn.Module):
    """Three projections, as in BERT."""

    def __init__(self, extra: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))
        self.extra = extra

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p(x).view(2, 5, 3, 4).transpose(1, 2) for p in (self.q, self.k, self.v))
        if self.extra:
            q = q * 2
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


CASES = {
    "joint": (Joint(True), {"project_heads": 4, "heads_mm": 2, "heads_outer": 1, "heads_sum": 1, "outer_heads": 1}),
    "joint without bias": (Joint(False), {"project_heads": 4, "heads_mm": 2, "heads_outer": 1, "outer_heads": 1}),
    "joint, with an empty cache": (
        Cached(True),
        {"project_heads": 4, "heads_mm": 2, "heads_outer": 1, "heads_sum": 1, "outer_heads": 1},
    ),
    "separate": (Separate(False), {"project_heads": 3, "heads_mm": 3, "heads_outer": 3, "heads_sum": 3}),
    "queries that something else happens to": (
        Separate(True),
        {"project_heads": 2, "heads_mm": 2, "heads_outer": 2, "heads_sum": 2},
    ),
}


@pytest.mark.thin(4)
@pytest.mark.parametrize("case", CASES)
def test_products_around_attention_change_their_layout_and_nothing_else(case: str) -> None:
    torch.manual_seed(0)
    module, expected = CASES[case]
    compiled = systolic.jit(gradients_of(module, module))
    compiled([True], torch.randn(2, 5, 12))
    graph = compiled.graph()
    changed = with_heads_in_place(graph)
    names = Counter(str(node.target).split(".")[1] for node in changed.nodes if str(node.target).startswith("systolic."))
    assert {name: names[name] for name in expected} == expected
    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        inputs = [some(draw, node.meta["val"]) for node in graph.nodes if node.op == "placeholder"]
        results = [interpret(g, inputs, LoweringContext()) for g in (graph, changed)]
    assert len(results[0]) == len(results[1]) > 3
    for want, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_of_biases_are_sums_in_float32(dtype: str) -> None:
    draw = np.random.default_rng(0)
    parts = [jnp.asarray(draw.normal(size=(4, 3, 640, 8)) + 1, dtype) for _ in range(2)]
    want = np.concatenate([np.asarray(p, np.float64).sum((0, 2)).reshape(1, -1) for p in parts], 1)
    # summed in bfloat16, it would be off by percents
    np.testing.assert_allclose(_heads_sum(parts), want, rtol=2e-6)
