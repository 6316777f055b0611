"""Products of linear layers keep batch and length apart on TPU, and give the same."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import to_jax
from torch import nn

import systolic
from systolic.compiler.lowering import LoweringContext, interpret
from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._hlo import analyse

pytestmark = pytest.mark.thin(3)


class FeedForward(nn.Module):
    """A transformer's feed-forward layer."""

    def __init__(self, bias: bool, width: int = 6, hidden: int = 10) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden, bias=bias), nn.Linear(hidden, width, bias=bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x), approximate="tanh"))


def gradients(module: nn.Module) -> Any:
    def step(x: torch.Tensor) -> list[torch.Tensor]:
        x = x.detach().requires_grad_()
        out = module(x)
        return [out.detach(), *torch.autograd.grad((out.float() ** 2).sum(), [x, *module.parameters()])]

    return step


def ranks(program: Any) -> list[int]:
    """How many dimensions the left operands of a program's products have."""
    return sorted(e.invars[0].aval.ndim for e in program.jaxpr.eqns if e.primitive.name == "dot_general")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_products_of_rows_equal_eager_pytorch(bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    module = FeedForward(bias).to(dtype)
    x = torch.randn(2, 5, 6, dtype=dtype)
    compiled = systolic.jit(gradients(module))
    compiled(x)
    graph = compiled.graph()
    state = {(*p.shape, str(p.dtype)): p for p in (*module.parameters(), x)}
    assert len(state) == len([*module.parameters()]) + 1, "shapes say which input a placeholder is"
    values = [n.meta["val"] for n in graph.nodes if n.op == "placeholder"]
    inputs = [to_jax(state[(*v.shape, str(v.dtype))].cpu()) for v in values]

    def on_tpu(*arrays: jax.Array) -> Any:
        return interpret(graph, arrays, LoweringContext(platform="tpu"))

    # forward, gradients of both inputs, gradients of both weights
    assert ranks(jax.make_jaxpr(on_tpu)(*inputs)) == [3] * 6
    expected = gradients(module.cpu())(x)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    results = on_tpu(*inputs)[: len(expected)]  # parameters follow, unchanged
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(np.asarray(got, np.float32), want.float().numpy(), rtol=tolerance, atol=tolerance)


def test_matrices_that_no_view_made_stay_matrices() -> None:
    layer = nn.Linear(6, 4)
    compiled = systolic.jit(gradients(layer))
    compiled(torch.randn(5, 6))
    graph = compiled.graph()
    inputs = [jax.numpy.zeros(tuple(n.meta["val"].shape)) for n in graph.nodes if n.op == "placeholder"]
    program = jax.make_jaxpr(lambda *a: interpret(graph, a, LoweringContext(platform="tpu")))(*inputs)
    assert ranks(program) == [2, 2, 2]


def test_no_activation_is_written_in_float32() -> None:
    """With views around the products, XLA writes the hidden layer's gradient in float32, to convert it once more elsewhere."""
    pytest.importorskip("libtpu")
    compiled = systolic.jit(gradients(FeedForward(True, 256, 1024).bfloat16()))
    compiled(torch.randn(4, 256, 256, dtype=torch.bfloat16))
    graph = compiled.graph()
    sharding = jax.sharding.SingleDeviceSharding(slice_devices(parse_slice("v5litepod-1"))[0])
    shapes = [tuple(n.meta["val"].shape) for n in graph.nodes if n.op == "placeholder"]
    arguments = [jax.ShapeDtypeStruct(shape, "bfloat16", sharding=sharding) for shape in shapes]
    program = jax.jit(lambda *a: interpret(graph, a, LoweringContext(platform="tpu"))).lower(*arguments).compile()
    hidden = 4 * 256 * 1024 * 4
    results = [array for operation in analyse(program.as_text()).operations for array in operation.results]
    assert not [array for array in results if array.dtype == "f32" and array.bytes >= hidden]
