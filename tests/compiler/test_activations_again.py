"""Graphs for TPU compute functions in activations again in the backward pass, and give the same."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.step_check import gradients_of, some
from torch import fx, nn

import systolic
from systolic.compiler.lowering import LoweringContext, interpret, is_backward
from systolic.compiler.passes import with_activations_again

T = torch.Tensor


class Layers(nn.Module):
    """Two products with an activation between them; enough numbers to be worth it."""

    def __init__(self, activation: Callable[[T], T]) -> None:
        super().__init__()
        self.up, self.down, self.activation = nn.Linear(8, 512), nn.Linear(512, 8), activation

    def forward(self, x: T) -> T:
        return self.down(self.activation(self.up(x)))


class Gated(Layers):
    """A gate beside the product, so that the activation comes of two products."""

    def __init__(self) -> None:
        super().__init__(nn.Identity())
        self.gate = nn.Linear(8, 512)

    def forward(self, x: T) -> T:
        return self.down(torch.sigmoid(self.gate(x) * self.up(x)))


def gelu_new(x: T) -> T:
    """As transformers has it for GPT-2, ALBERT and others."""
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def quick_gelu(x: T) -> T:
    """CLIP's."""
    return x * torch.sigmoid(1.702 * x)


def wide(x: T) -> T:
    return torch.exp(-x.float().square()).to(x.dtype)


def graph_of(module: nn.Module, dtype: torch.dtype) -> fx.Graph:
    compiled = systolic.jit(gradients_of(module.to(dtype), module))
    compiled([True], torch.randn(2, 64, 8, dtype=dtype))
    return compiled.graph()


def functions(graph: fx.Graph) -> list[str]:
    """Functions of the backward pass that belong to a formula."""
    found = (node for node in graph.nodes if node.op == "call_function" and is_backward(node))
    names = (node.target.overloadpacket.__name__ for node in found if isinstance(node.target, torch._ops.OpOverload))
    return sorted(name for name in names if name in ("tanh", "sigmoid", "exp"))


CASES = {
    "gelu_new": (gelu_new, ["tanh"]),
    "quick_gelu": (quick_gelu, ["sigmoid"]),
    "wide": (wide, ["exp"]),
}
"""Activations, and the functions that the backward pass computes."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", CASES)
def test_the_backward_pass_computes_formulas_again(name: str, dtype: torch.dtype) -> None:
    activation, expected = CASES[name]
    graph = graph_of(Layers(activation), dtype)
    changed = with_activations_again(graph)
    assert not functions(graph), "the captured graph stays as it is"
    assert functions(changed) == expected
    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        inputs = [some(draw, node.meta["val"]) for node in graph.nodes if node.op == "placeholder"]
        results = [interpret(g, inputs, LoweringContext()) for g in (graph, changed)]
    for want, got in zip(*results, strict=True):
        assert want.dtype == got.dtype
        np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize(
    "module",
    [Layers(F.gelu), Layers(F.relu), Gated(), nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 4))],
    ids=["PyTorch's", "cheap", "of two products", "small"],
)
def test_others_are_left_alone(module: nn.Module) -> None:
    graph = graph_of(module, torch.bfloat16)
    assert with_activations_again(graph) is graph
