"""Graphs for TPU compute gradients that several products take once, and give the same."""

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
from systolic.compiler.passes import with_shared_gradients


class Gated(nn.Module):
    """Llama's MLP."""

    def __init__(self, bias: bool = False) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(6, 10, bias=bias), nn.Linear(6, 10, bias=bias)
        self.down = nn.Linear(10, 6, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Plain(nn.Module):
    """T5's."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 10, bias=False), nn.Linear(10, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.relu(self.up(x)))


def graph_of(module: nn.Module, dtype: torch.dtype) -> fx.Graph:
    compiled = systolic.jit(gradients_of(module.to(dtype), module))
    compiled([True], torch.randn(2, 4, 6, dtype=dtype))
    return compiled.graph()


def kept(graph: fx.Graph) -> list[str]:
    """Ops whose results are in memory before they are multiplied."""
    found = (node for node in graph.nodes if node.target is torch.ops.systolic.in_memory.default)
    return sorted(node.args[0].target.overloadpacket.__name__ for node in found)  # type: ignore[union-attr]


CASES = [
    (Gated(), ["mul", "mul", "silu_backward"]),
    (Plain(), ["mul", "threshold_backward"]),
    (nn.Sequential(nn.Linear(6, 6, bias=False), nn.Linear(6, 5, bias=False)), ["mul"]),
]
"""Modules, and what comes before two products: of each module first the derivative of the loss, which multiplies."""


@pytest.mark.parametrize(("module", "expected"), CASES, ids=["gated", "plain", "products alone"])
def test_gradients_that_two_products_take_are_computed_once(module: nn.Module, expected: list[str]) -> None:
    graph = graph_of(module, torch.bfloat16)
    changed = with_shared_gradients(graph)
    assert kept(changed) == expected
    assert not kept(graph), "the captured graph stays as it is"
    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        inputs = [some(draw, node.meta["val"]) for node in graph.nodes if node.op == "placeholder"]
        results = [interpret(g, inputs, LoweringContext()) for g in (graph, changed)]
    for want, got in zip(*results, strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


def test_gradients_of_biases_are_summed_with_the_products() -> None:
    graph = graph_of(Gated(bias=True), torch.bfloat16)
    assert with_shared_gradients(graph) is graph


def test_float32_is_left_alone() -> None:
    graph = graph_of(Gated(), torch.float32)
    assert with_shared_gradients(graph) is graph
