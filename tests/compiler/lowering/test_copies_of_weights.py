"""A weight's copy in half precision, as programs for TPU make it, is PyTorch's."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import torch
from torch import fx

from systolic.compiler.lowering import LoweringContext, _views, interpret

NUMBERS = [
    0.0,
    -0.0,
    1.0,
    1.00390625,
    1.01171875,
    3.1415927,
    -1e-40,
    6e-39,
    65504.0,
    65520.0,
    3.4e38,
    float("inf"),
    float("nan"),
]


def copied(weight: torch.Tensor, dtype: torch.dtype) -> jax.Array:
    graph = fx.Graph()
    given = graph.placeholder("weight")
    given.meta["val"] = weight
    copy = graph.call_function(torch.ops.aten._to_copy.default, (given,), {"dtype": dtype})
    copy.meta["val"] = weight.to(dtype)
    graph.output((copy,))
    context = LoweringContext(platform="tpu")
    program = jax.make_jaxpr(lambda array: interpret(graph, [array], context))(weight.numpy())
    assert "optimization_barrier" in str(program), "it is made once"
    return interpret(graph, [jax.numpy.asarray(weight.numpy())], context)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_weight_is_rounded_as_by_pytorch(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the nearest number, of two as near the even one; what is too large for float16 is infinite."""
    monkeypatch.setattr(_views, "_LARGE_WEIGHT", 1)
    weight = torch.cat([torch.tensor(NUMBERS), torch.randn(1 << 16, generator=torch.Generator().manual_seed(0))])[None]
    found = np.asarray(copied(weight, dtype)).view(np.uint16)
    expected = weight.to(dtype).view(torch.uint16).numpy()
    is_nan = weight.isnan().numpy()
    np.testing.assert_array_equal(found[~is_nan], expected[~is_nan])
    assert np.isnan(np.asarray(copied(weight, dtype), np.float32)[is_nan]).all()
