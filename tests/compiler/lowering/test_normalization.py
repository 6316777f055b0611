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
from systolic.compiler.lowering._batch_norm import _statistics
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
