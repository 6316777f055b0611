"""On a GPU, large products of 16 bit numbers are filled up to sizes that its matrix units can load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest
import torch
from compiler.lowering.op_check import to_jax
from torch.fx.experimental.proxy_tensor import make_fx

from systolic.compiler.lowering import LoweringContext, _whole_tiles, interpret
from systolic.runtime._dtypes import jax_dtype

aten = torch.ops.aten


def jitted(function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], platform: str) -> Any:
    """The function for a platform."""
    graph = make_fx(lambda *xs: [function(*xs)], tracing_mode="fake")(*inputs).graph
    return jax.jit(lambda *xs: interpret(graph, xs, LoweringContext(platform=platform))[0])


# logits, the gradient of their inputs, that of the weight; a product with a bias
SHAPES = {
    "columns": ((32, 64), (64, 1027)),
    "inner": ((32, 1027), (1027, 64)),
    "rows": ((1027, 32), (32, 64)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("biased", [False, True])
def test_large_products_are_those_of_the_cpu(name: str, biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_whole_tiles, "_LARGE", 32 * 64 * 1027)
    left, right = SHAPES[name]
    x, y = torch.randn(left).bfloat16(), torch.randn(right).bfloat16()
    bias = torch.randn(right[1]).bfloat16()
    function, inputs = (aten.addmm.default, (bias, x, y)) if biased else (aten.mm.default, (x, y))
    arrays = [to_jax(t) for t in inputs]
    for_gpu, for_cpu = (jitted(function, inputs, platform) for platform in ("gpu", "cpu"))
    ours, theirs = (np.asarray(run(*arrays)).astype(np.float32) for run in (for_gpu, for_cpu))
    assert "1032" in for_gpu.lower(*arrays).as_text()
    assert "1032" not in for_cpu.lower(*arrays).as_text()
    assert ours.shape == theirs.shape
    # one unit of bfloat16: the sums are taken in another order
    np.testing.assert_allclose(ours, theirs, rtol=2**-7, atol=1e-2)
    expected = function(*inputs).float().numpy()
    np.testing.assert_allclose(ours, expected, rtol=2**-7, atol=1e-2)


def program(rows: int, columns: int, dtype: torch.dtype) -> str:
    """Of a product for a GPU; nothing runs."""
    inputs = torch.empty(rows, 512, dtype=dtype), torch.empty(512, columns, dtype=dtype)
    shapes = [jax.ShapeDtypeStruct(x.shape, jax_dtype(dtype)) for x in inputs]
    return jitted(aten.mm.default, inputs, "gpu").lower(*shapes).as_text()


def test_only_large_ones_of_16_bits_that_are_not_whole_are_filled_up() -> None:
    assert "8200" in program(1024, 8195, torch.bfloat16)
    assert "8200" not in program(64, 8195, torch.bfloat16)
    assert "8200" not in program(1024, 8195, torch.float32)
    assert "stablehlo.pad" not in program(1024, 8200, torch.bfloat16)
