"""Overloads that a trace of ordinary code seldom shows, called as they stand in the table."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
from compiler.lowering.op_check import to_jax

from systolic.compiler.lowering import LoweringContext, find_lowering
from systolic.compiler.lowering._context import lowering_context
from systolic.runtime._dtypes import jax_dtype

pytestmark = pytest.mark.thin(2)

aten = torch.ops.aten
T = torch.Tensor

torch.manual_seed(5)
X, Y, W = torch.randn(3, 4), torch.randn(3, 4), torch.randn(5, 4)
B, C = torch.randn(2, 3, 4), torch.randn(2, 4, 5)
N = torch.arange(1, 13).reshape(3, 4)
Z = torch.randn(3, 4, dtype=torch.complex64)
ONE = torch.tensor(1.0)

CALLS: list[tuple[Any, ...]] = [
    (aten.selu.default, X), (aten.isin.Scalar_Tensor, 3, N),
    (aten.where.ScalarOther, X > 0, X, 2.0), (aten.where.ScalarSelf, X > 0, 2, X), (aten.where.Scalar, X > 0, 1.0, 0.0),
    (aten.isfinite.default, X / 0), (aten.__lshift__.Tensor, N, N), (aten.__rshift__.Tensor, N, N),
    (aten._conj_copy.default, Z), (aten.conj_physical.default, Z), (aten.resolve_conj.default, Z), (aten.resolve_neg.default, X),
    (aten.real.default, Z), (aten.imag.default, Z), (aten.view_as_real_copy.default, Z),
    (aten.view_as_complex_copy.default, X.reshape(3, 2, 2)), (aten._efficientzerotensor.default, [2, 3]),
    (aten.arange.start, 2, 9), (aten.range.default, 0, 4), (aten.range.step, 0, 4, 2),
    (aten.linspace.Scalar_Tensor, 0, ONE, 5), (aten.linspace.Tensor_Scalar, ONE, 3, 5),
    (aten.logspace.Scalar_Tensor, 0, ONE, 5), (aten.logspace.Tensor_Tensor, ONE, ONE * 2, 5),
    (aten._aminmax.default, X), (aten._aminmax.dim, X, 1, True), (aten.tile.default, X, [2, 1]),
    (aten.native_channel_shuffle.default, B.reshape(1, 6, 2, 2), 2), (aten._chunk_cat.default, [X, W[:3]], 0, 2),
    (aten.repeat_interleave.self_int, X, 2, 1), (aten._int_mm.default, torch.ones(17, 8).char(), torch.ones(8, 8).char()),
    (aten.matmul.default, B, C[0]), (aten.matmul.default, B, C), (aten.matmul.default, X, Y[0]),
    (aten.linear.default, B, W, W[:, 0]), (aten.linear.default, B, W), (aten.linear.default, X[0], W, W[:, 0]),
    (aten._addmm_activation.default, W[:, 0], X, W.T), (aten.outer.default, X[0], Y[0]), (aten.ger.default, X[0], Y[0]),
    (aten._add_relu.Tensor, X, Y), (aten.floor_divide.Scalar, X, 0.3),
    (aten.remainder.Scalar_Tensor, 5, N), (aten.all.dims, X > -1, [0, 1]), (aten.all.dims, X > -1, []),
    (aten._is_all_true.default, X > 0), (aten._is_any_true.default, X > 0), (aten.norm.Scalar, X, 3),
    (aten.norm.ScalarOpt_dim, X, 1, [1], True), (aten.argsort.default, X, 0, True),
    (aten.bucketize.Scalar, 5, N[0]), (aten.special_modified_bessel_i0.default, X),
    (aten.special_modified_bessel_i1.default, X), (aten.special_spherical_bessel_j0.default, X),
    (aten.special_xlog1py.other_scalar, X, 2.0), (aten.special_xlog1py.self_scalar, 2.0, X.abs()),
    (aten.special_zeta.other_scalar, X.abs() + 1.5, 2.0), (aten.special_zeta.self_scalar, 2.0, X.abs() + 0.5),
    (aten._neg_view_copy.default, X), (aten.contiguous.default, X.T), (aten.detach_copy.default, X),
    (aten.lift.default, X), (aten.lift_fresh.default, X), (aten._lazy_clone.default, X), (aten.reshape.default, X, [2, -1]),
    (aten._reshape_copy.default, X, [2, 6]), (aten._reshape_alias.default, X, [2, 6], [6, 1]),
    (aten._reshape_alias_copy.default, X, [2, 6], [6, 1]), (aten.view_as.default, X, torch.zeros(6, 2)),
    (aten.reshape_as.default, X, torch.zeros(6, 2)), (aten.view_copy.dtype, X, torch.int32), (aten.numpy_T.default, B[0]),
    (aten.movedim.intlist, B, [0, 1], [1, 2]), (aten.movedim.int, B, 0, -1), (aten.squeeze_copy.default, X[:1]),
    (aten.squeeze_copy.dim, X[:1], 0), (aten.squeeze_copy.dims, X[:1], [0, 1]), (aten.narrow.default, X, 1, -2, 2),
    (aten.split_copy.Tensor, X, 2), (aten.unsafe_split.Tensor, X, 3, 1), (aten.split_with_sizes_copy.default, X, [1, 2]),
    (aten.unsafe_split_with_sizes.default, X, [1, 3], 1), (aten.chunk.default, X, 3, -1), (aten.unsafe_chunk.default, X, 2),
    (aten.unbind_copy.int, X, 1), (aten.concat.default, [X, Y], 1), (aten._stack.default, [X, Y], 1),
    (aten.unfold_copy.default, X, 1, 2, 2), (aten.diagonal_copy.default, X, 1),
    (aten.hann_window.periodic, 8, False), (aten.blackman_window.periodic, 8, False), (aten.bartlett_window.periodic, 8, False),
    (aten.kaiser_window.periodic, 8, False), (aten.kaiser_window.beta, 8, True, 5.0), (aten.hamming_window.default, 8),
    (aten.hamming_window.periodic_alpha, 8, True, 0.6), (aten.hamming_window.periodic_alpha_beta, 8, True, 0.6, 0.4),
]  # fmt: skip


def convert(value: Any) -> Any:
    if isinstance(value, T):
        return to_jax(value)
    return [convert(v) for v in value] if isinstance(value, list) else value


def label(call: Any) -> str | None:
    return str(call[0]) if isinstance(call, tuple) else None


@pytest.mark.parametrize("call", CALLS, ids=label)
def test_overload(call: tuple[Any, ...]) -> None:
    op, *arguments = call
    expected = op(*arguments)
    lowering = find_lowering(op)
    assert lowering is not None
    with jax.enable_x64(True), lowering_context(LoweringContext(output=expected)):
        received = lowering(*convert(arguments))
        pairs = zip(expected, received, strict=True) if isinstance(expected, (tuple, list)) else [(expected, received)]
        for want, got in pairs:
            np.testing.assert_allclose(
                np.asarray(got.astype(jax_dtype(want.dtype))),
                want.resolve_conj().numpy(force=True),
                rtol=1e-5,
                atol=1e-6,
            )


def test_keyword_only_overloads() -> None:
    calls = [
        (aten.norm.ScalarOpt_dim_dtype, (X, 2, [1], False), {"dtype": torch.float64}),
        (aten.div.Scalar_mode, (X, 0.3), {"rounding_mode": "trunc"}),
        (aten.norm.ScalarOpt_dtype, (X, 1), {"dtype": torch.float64}),
        (aten.argsort.stable, (X,), {"stable": True, "dim": 0}),
        (aten.empty_permuted.default, ([2, 3], [1, 0]), {}),
    ]
    for op, arguments, options in calls:
        expected = op(*arguments, **options)
        with jax.enable_x64(True), lowering_context(LoweringContext(output=expected)):
            received = find_lowering(op)(*convert(list(arguments)), **options)
        assert received.shape == tuple(expected.shape)
        if op is not aten.empty_permuted.default:
            np.testing.assert_allclose(np.asarray(received), expected.numpy(), rtol=1e-6)
