"""On a GPU, large products of 16 bit numbers are filled up to sizes that its matrix units can load."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from compiler.lowering.op_check import to_jax
from torch.fx.experimental.proxy_tensor import make_fx

from systolic.compiler.lowering import LoweringContext, interpret

aten = torch.ops.aten


def lowered(function, inputs, platform: str):
    graph = make_fx(function, tracing_mode="fake")(*inputs).graph
    arrays = [to_jax(t) for t in inputs]
    run = jax.jit(lambda *xs: interpret(graph, xs, LoweringContext(platform=platform))[0])
    return np.asarray(run(*arrays)).astype(np.float32), run.lower(*arrays).as_text()


# logits, the gradient of their inputs, that of the weight; a product with a bias
SHAPES = {
    "columns": ((1024, 512), (512, 8195)),
    "inner": ((1024, 8195), (8195, 512)),
    "rows": ((8195, 1024), (1024, 512)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_large_products_are_those_of_the_cpu(name: str, biased: bool) -> None:
    left, right = SHAPES[name]
    x, y = torch.randn(left).bfloat16(), torch.randn(right).bfloat16()
    bias = torch.randn(right[1]).bfloat16()
    function, inputs = (aten.addmm.default, (bias, x, y)) if biased else (aten.mm.default, (x, y))
    ours, text = lowered(lambda *xs: [function(*xs)], inputs, "gpu")
    theirs, plain = lowered(lambda *xs: [function(*xs)], inputs, "cpu")
    assert "8200" in text
    assert "8200" not in plain
    assert ours.shape == theirs.shape
    # one unit of bfloat16: the sums are taken in another order
    np.testing.assert_allclose(ours, theirs, rtol=2**-7, atol=1e-2)
    expected = function(*inputs).float().numpy()
    np.testing.assert_allclose(ours, expected, rtol=2**-7, atol=1e-2)


@pytest.mark.parametrize(("rows", "dtype"), [(64, torch.bfloat16), (1024, torch.float32)])
def test_small_ones_and_float32_stay(rows: int, dtype: torch.dtype) -> None:
    x, y = torch.randn(rows, 512).to(dtype), torch.randn(512, 8195).to(dtype)
    _, text = lowered(lambda x, y: [aten.mm.default(x, y)], (x, y), "gpu")
    assert "8200" not in text


def test_whole_ones_stay() -> None:
    x, y = torch.randn(1024, 512).bfloat16(), torch.randn(512, 8192).bfloat16()
    _, text = lowered(lambda x, y: [aten.mm.default(x, y)], (x, y), "gpu")
    assert "stablehlo.pad" not in text
