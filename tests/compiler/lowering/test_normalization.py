"""Normalisation against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op, to_jax
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from systolic.compiler.lowering import LoweringContext, interpret
from systolic.compiler.lowering._batch_norm import _statistics, _train, native_batch_norm_backward
from systolic.compiler.lowering._context import lowering_context

pytestmark = pytest.mark.thin(3)

Case = tuple[Callable[..., Any], list[tuple[int, ...]]]

CASES: dict[str, Case] = {
    "layer": (lambda x, w, b: F.layer_norm(x, w.shape, w, b), [(4, 6, 8), (8,), (8,)]),
    "layer_two_dimensions": (lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-3), [(4, 6, 8), (6, 8), (6, 8)]),
    "layer_without_bias": (lambda x, w: F.layer_norm(x, w.shape, w), [(4, 8), (8,)]),
    "layer_plain": (lambda x: F.layer_norm(x, (8,)), [(4, 8)]),
    "group": (lambda x, w, b: F.group_norm(x, 3, w, b), [(4, 6, 5, 2), (6,), (6,)]),
    "group_plain": (lambda x: F.group_norm(x, 2), [(4, 6)]),
    "group_of_no_samples": (lambda x, w, b: F.group_norm(x, 3, w, b), [(0, 6, 5), (6,), (6,)]),
    "instance": (lambda x, w, b: F.instance_norm(x, None, None, w, b), [(4, 6, 5, 2), (6,), (6,)]),
    "rms": (lambda x, w: F.rms_norm(x, (8,), w), [(4, 6, 8), (8,)]),
    "rms_two_dimensions": (lambda x, w: F.rms_norm(x, (6, 8), w, 1e-3), [(4, 6, 8), (6, 8)]),
    "rms_plain": (lambda x: F.rms_norm(x, (8,)), [(4, 8)]),
    "local_response": (lambda x: F.local_response_norm(x, 3), [(2, 5, 4, 4)]),
    "batch_no_statistics": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), [(8, 6, 3, 2), (6,), (6,)]),
}


@pytest.mark.parametrize("case", CASES)
def test_norm(case: str) -> None:
    function, shapes = CASES[case]
    torch.manual_seed(0)
    check_op(function, *[torch.randn(shape, requires_grad=True) for shape in shapes], atol=3e-6)


@pytest.mark.parametrize("case", ["layer", "group", "rms", "batch_no_statistics"])
def test_bfloat16(case: str) -> None:
    function, shapes = CASES[case]
    torch.manual_seed(0)
    tensors = [torch.randn(shape).to(torch.bfloat16).requires_grad_() for shape in shapes]
    check_op(function, *tensors, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(8, 6), (4, 6, 5), (4, 6, 3, 2), (2, 6, 2, 3, 2)])
def test_batch_norm(shape: tuple[int, ...], affine: bool, training: bool) -> None:
    torch.manual_seed(0)

    def function(x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, *affine: torch.Tensor) -> Any:
        mean, var = mean.clone(), var.clone()
        out = F.batch_norm(x, mean, var, *affine, training=training, momentum=0.3)
        return out, mean, var

    tensors = [torch.randn(shape, requires_grad=True), torch.randn(6), torch.rand(6) + 0.5]
    if affine:
        tensors += [torch.randn(6, requires_grad=True), torch.randn(6, requires_grad=True)]
    check_op(function, *tensors, atol=3e-6)


def sharded(function: Callable[..., Any], tensors: list[torch.Tensor], shards: int) -> list[np.ndarray]:
    graph = make_fx(dispatch_functionalize(function), tracing_mode="fake")(*tensors).graph
    with jax.enable_x64(True):
        context = LoweringContext(batch_shards=shards)
        out = jax.jit(lambda *xs: tuple(interpret(graph, xs, context)))(*[to_jax(t) for t in tensors])
        return [np.asarray(leaf) for leaf in out]


def batch_norm_step(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, mean: torch.Tensor, var: torch.Tensor
) -> list[torch.Tensor]:
    mean, var = mean.clone(), var.clone()
    leaves = [t.detach().requires_grad_() for t in (x, weight, bias)]
    out = F.batch_norm(leaves[0], mean, var, leaves[1], leaves[2], training=True, momentum=0.3)
    return [out.detach(), mean, var, *torch.autograd.grad((out * out.detach().exp()).sum(), leaves)]


@pytest.mark.parametrize(("batch", "shards"), [(6, 3), (6, 1), (6, 4)])
def test_batch_norm_of_each_core(batch: int, shards: int) -> None:
    torch.manual_seed(0)
    x, weight, bias, mean, var = (
        torch.randn(batch, 5, 4, 3),
        torch.randn(5),
        torch.randn(5),
        torch.randn(5),
        torch.rand(5),
    )
    received = sharded(batch_norm_step, [x, weight, bias, mean, var], shards)
    parts = shards if batch % shards == 0 else 1
    each = [batch_norm_step(part, weight, bias, mean, var) for part in x.chunk(parts)]
    out, new_mean, new_var, grad_x, grad_weight, grad_bias = zip(*each, strict=True)
    expected = [
        torch.cat(out),
        torch.stack(new_mean).mean(0),
        torch.stack(new_var).mean(0),
        torch.cat(grad_x),
        torch.stack(grad_weight).sum(0),
        torch.stack(grad_bias).sum(0),
    ]
    for want, got in zip(expected, received, strict=True):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=5e-5)


def test_one_pass_statistics_lose_less_than_the_rounding_of_the_input() -> None:
    draw = np.random.default_rng(0)
    exact = draw.normal(size=(64, 32, 32, 4)) * [1.0, 0.1, 3.0, 1e-3] + [0.0, 2.0, 100.0, 5.0]
    rounded = jnp.asarray(exact, jnp.bfloat16)
    array = np.asarray(rounded, np.float64)
    with lowering_context(LoweringContext(platform="tpu")):
        mean, variance = _statistics(rounded.astype(jnp.float32)[None], 0, rounded.dtype)
    np.testing.assert_allclose(np.ravel(mean), array.mean((0, 1, 2)), rtol=1e-5, atol=1e-5)
    lost = np.abs(np.ravel(variance) - array.var((0, 1, 2)))
    rounding = np.abs(exact.var((0, 1, 2)) - array.var((0, 1, 2))) + (2.0**-9 * array.mean((0, 1, 2))) ** 2 / 3
    assert (lost <= rounding + 1e-6 * array.var((0, 1, 2))).all()


def test_few_operations_lose_less_than_the_rounding_of_the_result() -> None:
    """As programs for TPU normalise 16 bits and differentiate that, with channels far from zero, beside PyTorch in float64."""
    draw = np.random.default_rng(0)
    numbers = draw.normal(size=(16, 4, 8, 8)) * np.reshape([1.0, 0.1, 3.0, 0.05], (4, 1, 1))
    x = torch.tensor(numbers + np.reshape([0.0, 2.0, -100.0, 5.0], (4, 1, 1))).bfloat16()
    grad, weight, bias = torch.tensor(draw.normal(size=x.shape)).bfloat16(), torch.tensor([1.0, 2.0, -0.5, 1.5]), torch.ones(4)
    exact = [value.double().requires_grad_() for value in (x, weight, bias)]
    expected = F.batch_norm(exact[0], None, None, *exact[1:], training=True)
    expected.backward(grad.double())
    arrays = [jnp.asarray(value.float().numpy()) for value in (x, grad, weight, bias)]
    narrow = [array.astype(jnp.bfloat16) for array in arrays[:2]]
    with lowering_context(LoweringContext(platform="tpu")):
        out, mean, rstd, _ = _train(narrow[0], arrays[2], arrays[3], 1e-5)
        saved = (None, None, mean, rstd, True, 1e-5, [True, True, True])
        of_x, of_weight, of_bias = native_batch_norm_backward(narrow[1], narrow[0], arrays[2], *saved)
    rounding = 2.0**-8
    for got, want in zip((out, of_x), (expected, exact[0].grad), strict=True):
        assert want is not None
        size = want.detach().abs().amax((0, 2, 3), keepdim=True).numpy()
        lost = np.abs(np.asarray(got, np.float64) - want.detach().numpy())
        assert (lost <= rounding * (np.abs(want.detach().numpy()) + 0.01 * size)).all()
    for found, one in zip((of_weight, of_bias), exact[1:], strict=True):
        assert one.grad is not None
        np.testing.assert_allclose(np.asarray(found, np.float64), one.grad.numpy(), rtol=1e-3, atol=1e-2)
