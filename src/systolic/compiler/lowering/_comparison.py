"""Comparisons, logic, masks and bounds."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._dtype import announced_dtype, as_array, binary, promoted
from ._operand import Operand
from ._table import lowers

aten = torch.ops.aten


def _logical(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    return lambda *operands: function(*(operand != 0 for operand in operands))


@lowers(aten.where.self, aten.where.ScalarOther, aten.where.ScalarSelf, aten.where.Scalar)
def _where(condition: jax.Array, x: Operand, y: Operand) -> jax.Array:
    dtype = announced_dtype()
    return jnp.where(condition.astype(jnp.bool_), as_array(x, dtype), as_array(y, dtype))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def _masked_fill(x: jax.Array, mask: jax.Array, value: Operand) -> jax.Array:
    return jnp.where(mask.astype(jnp.bool_), as_array(value, x.dtype), x)


@lowers(
    aten.clamp.default,
    aten.clamp.Tensor,
    aten.clamp_min.default,
    aten.clamp_min.Tensor,
)
def _clamp(x: jax.Array, min: Operand | None = None, max: Operand | None = None) -> jax.Array:
    dtype = announced_dtype()
    x = as_array(x, dtype)
    if min is not None:
        x = jnp.maximum(x, as_array(min, dtype))
    # when the bounds cross PyTorch gives the upper one
    return x if max is None else jnp.minimum(x, as_array(max, dtype))


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor)
def _clamp_max(x: jax.Array, max: Operand) -> jax.Array:
    return _clamp(x, None, max)


@lowers(aten.threshold.default)
def _threshold(x: jax.Array, threshold: Operand, value: Operand) -> jax.Array:
    return jnp.where(x <= as_array(threshold, x.dtype), as_array(value, x.dtype), x)


@lowers(aten.threshold_backward.default)
def _threshold_backward(grad: jax.Array, x: jax.Array, threshold: Operand) -> jax.Array:
    grad, x = promoted(grad, x)
    return jnp.where(x <= as_array(threshold, x.dtype), jnp.zeros((), grad.dtype), grad)


@lowers(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def _isin(elements: Operand, tested: Operand, assume_unique: bool = False, invert: bool = False) -> jax.Array:
    elements, tested = promoted(elements, tested)
    return jnp.isin(elements, tested, assume_unique=assume_unique, invert=invert)


for _name, _compare in {
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
}.items():
    _packet = getattr(aten, _name)
    lowers(_packet.Tensor, _packet.Scalar)(binary(_compare))

for _op, _function in {
    aten.logical_and.default: jnp.logical_and,
    aten.logical_or.default: jnp.logical_or,
    aten.logical_xor.default: jnp.logical_xor,
    aten.logical_not.default: jnp.logical_not,
}.items():
    lowers(_op)(_logical(_function))

for _op, _function in {
    aten.isnan.default: jnp.isnan,
    aten.isinf.default: jnp.isinf,
    aten.isfinite.default: jnp.isfinite,
    aten.isposinf.default: jnp.isposinf,
    aten.isneginf.default: jnp.isneginf,
    aten.signbit.default: jnp.signbit,
}.items():
    lowers(_op)(_function)

for _name, _function in {"and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor}.items():
    _packet = getattr(aten, f"bitwise_{_name}")
    lowers(_packet.Tensor, _packet.Scalar, _packet.Scalar_Tensor)(binary(_function))


def _left_shift(x: jax.Array, amount: jax.Array) -> jax.Array:
    bits = x.dtype.itemsize * 8
    outside = (amount < 0) | (amount >= bits)
    return jnp.where(outside, 0, jnp.left_shift(x, jnp.where(outside, 0, amount))).astype(x.dtype)


def _right_shift(x: jax.Array, amount: jax.Array) -> jax.Array:
    # beyond the width only the sign is left
    bits = x.dtype.itemsize * 8
    last = bits - jnp.issubdtype(x.dtype, jnp.signedinteger)
    amount = jnp.where((amount < 0) | (amount >= bits), jnp.asarray(last, x.dtype), amount)
    return jnp.right_shift(x, amount)


lowers(aten.bitwise_not.default)(jnp.invert)
for _function, _packet, _operator in (
    (_left_shift, aten.bitwise_left_shift, aten.__lshift__),
    (_right_shift, aten.bitwise_right_shift, aten.__rshift__),
):
    lowers(_packet.Tensor, _packet.Tensor_Scalar, _packet.Scalar_Tensor, _operator.Tensor, _operator.Scalar)(binary(_function))
