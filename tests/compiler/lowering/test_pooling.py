"""Pooling against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiler.lowering.op_check import check_op

from systolic.compiler.lowering._context import LoweringContext, lowering_context
from systolic.compiler.lowering._pooling import _max_pool_backward

pytestmark = pytest.mark.thin(3)

CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "max_1d": (lambda x: F.max_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "max_1d_ceil": (lambda x: F.max_pool1d(x, 2, 3, ceil_mode=True, return_indices=True), (2, 3, 10)),
    "max_2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "max_2d_indices": (lambda x: F.max_pool2d(x, (2, 3), return_indices=True), (2, 3, 9, 8)),
    "max_2d_unbatched": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (3, 9, 8)),
    "max_2d_dilated": (lambda x: F.max_pool2d(x, 2, 1, 1, (2, 1), return_indices=True), (2, 3, 9, 8)),
    "max_2d_ceil": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), (2, 3, 6, 7)),
    "max_2d_ceil_drops": (lambda x: F.max_pool2d(x, 2, 3, 1, ceil_mode=True, return_indices=True), (2, 3, 5, 8)),
    "max_3d": (lambda x: F.max_pool3d(x, 2, 2, return_indices=True), (2, 3, 5, 6, 4)),
    "max_3d_dilated": (lambda x: F.max_pool3d(x, 2, 1, 1, 2), (1, 2, 5, 6, 4)),
    "avg_1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "avg_2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), (2, 3, 9, 8)),
    "avg_2d_exclude": (lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (2, 3, 9, 8)),
    "avg_2d_ceil": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8, 7)),
    "avg_2d_ceil_exclude": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (3, 8, 7)),
    "avg_2d_divisor": (lambda x: F.avg_pool2d(x, (2, 3), divisor_override=5), (2, 3, 9, 8)),
    "avg_3d": (lambda x: F.avg_pool3d(x, 2, 2, 1, ceil_mode=True), (2, 3, 5, 6, 4)),
    "lp_2d": (lambda x: F.lp_pool2d(x.abs() + 1, 3.0, 2, 2), (2, 3, 6, 6)),
    "adaptive_avg_1d": (lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 9)),
    "adaptive_avg_2d": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), (2, 3, 7, 8)),
    "adaptive_avg_2d_even": (lambda x: F.adaptive_avg_pool2d(x, (2, 4)), (2, 3, 6, 8)),
    "adaptive_avg_2d_global": (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 7, 8)),
    "adaptive_avg_2d_grows": (lambda x: F.adaptive_avg_pool2d(x, (7, None)), (3, 4, 8)),
    "adaptive_avg_3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), (2, 3, 5, 7, 4)),
    "adaptive_max_1d": (lambda x: F.adaptive_max_pool1d(x, 4, return_indices=True), (2, 3, 9)),
    "adaptive_max_2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3), return_indices=True), (2, 3, 7, 8)),
    "adaptive_max_3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 1), return_indices=True), (2, 3, 5, 7, 4)),
}


@pytest.mark.parametrize("values", ["distinct", "ties"])
@pytest.mark.parametrize("case", CASES)
def test_pooling(case: str, values: str) -> None:
    function, shape = CASES[case]
    torch.manual_seed(0)
    x = torch.randn(shape) if values == "distinct" else torch.randint(0, 3, shape).float()
    check_op(function, x.requires_grad_())


@pytest.mark.parametrize("case", ["max_2d", "avg_2d", "adaptive_avg_2d"])
def test_bfloat16(case: str) -> None:
    function, shape = CASES[case]
    torch.manual_seed(0)
    check_op(function, torch.randn(shape).to(torch.bfloat16).requires_grad_(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_special_values(value: float) -> None:
    x = torch.randn(1, 2, 6, 6)
    x[0, 0, 1:3, 2:4] = value
    check_op(lambda x: F.max_pool2d(x, 2, 2, return_indices=True), x)


def test_unpool() -> None:
    torch.manual_seed(0)
    check_op(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), torch.randn(2, 3, 6, 8))
    check_op(lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2), torch.randn(2, 3, 4, 6, 2))
    x = torch.randn(2, 3, 3, 4, requires_grad=True)
    index = F.max_pool2d(torch.randn(2, 3, 6, 8), 2, return_indices=True)[1]
    check_op(lambda x, i: F.max_unpool2d(x, i, 2), x, index)


@pytest.mark.parametrize("dims", [2, 3])
def test_fractional(dims: int) -> None:
    torch.manual_seed(0)
    x, samples = torch.randn(2, 3, *(9, 8, 7)[:dims], requires_grad=True), torch.rand(2, 3, dims)
    pool = F.fractional_max_pool2d if dims == 2 else F.fractional_max_pool3d
    size = (4, 3, 3)[:dims]
    check_op(lambda x, s: pool(x, 2, size, _random_samples=s, return_indices=True), x, samples)


def test_the_gradient_for_tpu_equals_the_other_one_where_no_windows_overlap() -> None:
    draw = np.random.default_rng(0)
    x, grad = (jnp.asarray(draw.normal(size=size), jnp.bfloat16) for size in ((2, 3, 8, 8), (2, 3, 4, 4)))
    found = []
    for platform in ("cpu", "tpu"):
        with lowering_context(LoweringContext(platform=platform)):
            indices = jnp.zeros(grad.shape, jnp.int32)
            found.append(_max_pool_backward(2, grad, x, (2, 2), (2, 2), (0, 0), (1, 1), False, indices))
    np.testing.assert_array_equal(found[0], found[1])
