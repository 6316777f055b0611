"""Arithmetic of two or three operands."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._dtype import announced_dtype, as_array, binary, compute_dtype, float_binary, promoted
from ._operand import Operand
from ._table import lowers

aten = torch.ops.aten


_Binary = Callable[[jax.Array, jax.Array], jax.Array]


def _direct(ordinary: _Binary, primitive: _Binary) -> _Binary:
    """An operation that is XLA's own where JAX's would do no more: to find that out takes JAX twice the time of the rest."""

    def operation(x: jax.Array, y: jax.Array) -> jax.Array:
        alike = x.dtype == y.dtype and (x.shape == y.shape or not x.shape or not y.shape)
        return primitive(x, y) if alike else ordinary(x, y)

    return operation


_plus, _minus = _direct(operator.add, jax.lax.add), _direct(operator.sub, jax.lax.sub)
_times = _direct(operator.mul, jax.lax.mul)


def _scaled(x: jax.Array, factor: Operand) -> jax.Array:
    return x if isinstance(factor, (int, float)) and factor == 1 else _times(x, as_array(factor, x.dtype))


@lowers(aten.add.Tensor, aten.add.Scalar)
def _add(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    x, y = promoted(x, y, exact=True)
    return x | (y & bool(alpha)) if x.dtype == jnp.bool_ else _plus(x, _scaled(y, alpha))


@lowers(aten.sub.Tensor, aten.sub.Scalar)
def _sub(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    x, y = promoted(x, y, exact=True)
    return _minus(x, _scaled(y, alpha))


@lowers(aten.rsub.Tensor, aten.rsub.Scalar)
def _rsub(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    x, y = promoted(x, y, exact=True)
    return _minus(y, _scaled(x, alpha))


@lowers(aten._add_relu.Tensor, aten._add_relu.Scalar)
def _add_relu(x: Operand, y: Operand, alpha: Operand = 1) -> jax.Array:
    return jnp.maximum(_add(x, y, alpha), 0)


@lowers(aten.mul.Tensor, aten.mul.Scalar)
def _mul(x: Operand, y: Operand) -> jax.Array:
    x, y = promoted(x, y, exact=True)
    return x & y if x.dtype == jnp.bool_ else _times(x, y)


@lowers(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _div_mode(x: Operand, y: Operand, rounding_mode: str | None = None) -> jax.Array:
    if rounding_mode is None:
        return _true_divide(x, y)
    return (_floor_divide if rounding_mode == "floor" else _trunc_divide)(x, y)


@lowers(aten.div.Tensor, aten.div.Scalar)
def _true_divide(x: Operand, y: Operand) -> jax.Array:
    x, y = promoted(x, y, floating=True, exact=True)
    return x / y


def _trunc_divide(x: Operand, y: Operand) -> jax.Array:
    x, y = jnp.broadcast_arrays(*promoted(x, y))
    return jnp.trunc(x / y) if jnp.issubdtype(x.dtype, jnp.floating) else jax.lax.div(x, y)


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar)
def _floor_divide(x: Operand, y: Operand) -> jax.Array:
    x, y = promoted(x, y)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return jnp.floor_divide(x, y)
    # by way of the remainder: floor(x / y) would be off by one where the quotient rounds up to an integer
    remainder = jnp.fmod(x, y)
    quotient = (x - remainder) / y
    quotient = jnp.where((remainder != 0) & ((y < 0) != (remainder < 0)), quotient - 1, quotient)
    floor = jnp.floor(quotient)
    floor = jnp.where(quotient - floor > 0.5, floor + 1, floor)
    exact = x / y
    return jnp.where(y == 0, exact, jnp.where(quotient == 0, jnp.copysign(jnp.zeros_like(exact), exact), floor))


@lowers(aten.pow.Tensor_Tensor)
def _pow(x: Operand, y: Operand) -> jax.Array:
    return jnp.power(*promoted(x, y))


@lowers(aten.pow.Tensor_Scalar)
def _pow_number(x: jax.Array, exponent: Any) -> jax.Array:
    base, power = promoted(x, exponent, exact=True)
    if isinstance(exponent, jax.Array):
        return jnp.power(base, power)
    if not jnp.issubdtype(base.dtype, jnp.inexact):
        return jax.lax.integer_pow(base, int(exponent))
    if exponent in (0.5, -0.5):
        return jnp.sqrt(base) if exponent > 0 else jax.lax.rsqrt(base)
    if not isinstance(exponent, complex) and float(exponent).is_integer() and abs(exponent) <= 3:
        return jax.lax.integer_pow(base, int(exponent))
    return jnp.power(base, power)


@lowers(aten.pow.Scalar)
def _pow_of_number(base: Any, exponent: jax.Array) -> jax.Array:
    number, power = promoted(base, exponent)
    positive = isinstance(base, (int, float)) and 0 < base < math.inf
    if positive and power.dtype == jnp.float32:
        return _accurate_power(float(base), power)
    return jnp.power(number, power)


def _accurate_power(base: float, exponent: jax.Array) -> jax.Array:
    """`base ** exponent` in float32 with the logarithm of the base in twice that precision.

    Optimizers ask for `1 - beta ** step`. Rounding beta to float32 first, or the product of its logarithm with a
    large step, costs as many digits as the step has: both are kept as sums of two floats.
    """
    log2 = math.log2(base)
    high = _leading_bits_of(log2)
    low = log2 - high
    leading = _leading_bits(exponent)
    whole = jnp.round(exponent * jnp.float32(log2))
    # the first product is exact: twelve bits by twelve bits
    fraction = (leading * jnp.float32(high) - whole) + (exponent - leading) * jnp.float32(high)
    fraction = fraction + exponent * jnp.float32(low)
    scaled = jnp.ldexp(jnp.exp(fraction * jnp.float32(math.log(2))), jnp.clip(whole, -300, 300).astype(jnp.int32))
    return jnp.where(jnp.isfinite(exponent), scaled, jnp.power(jnp.float32(base), exponent))


def _leading_bits(x: jax.Array) -> jax.Array:
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) & jnp.uint32(0xFFFFF000)
    return jax.lax.bitcast_convert_type(bits, jnp.float32)


def _leading_bits_of(number: float) -> float:
    bits = np.asarray(number, np.float32).view(np.uint32) & np.uint32(0xFFFFF000)
    return float(bits.view(np.float32))


@lowers(aten.addcmul.default)
def _addcmul(x: jax.Array, left: jax.Array, right: jax.Array, value: Operand = 1) -> jax.Array:
    x, left, right = promoted(x, left, right)
    return _plus(x, _times(_scaled(left, value), right))


@lowers(aten.addcdiv.default)
def _addcdiv(x: jax.Array, left: jax.Array, right: jax.Array, value: Operand = 1) -> jax.Array:
    x, left, right = promoted(x, left, right)
    return x + _scaled(left, value) / right


@lowers(aten.lerp.Tensor, aten.lerp.Scalar)
def _lerp(start: jax.Array, end: jax.Array, weight: Operand) -> jax.Array:
    dtype = compute_dtype(announced_dtype())
    start, end, share = (as_array(v, dtype) for v in (start, end, weight))
    way = _minus(end, start)
    # two forms, so that the ends are hit exactly; of a number it is known which one
    if isinstance(weight, (int, float)):
        return _plus(start, _times(share, way)) if abs(weight) < 0.5 else _minus(end, _times(way, 1 - share))
    return jnp.where(jnp.abs(share) < 0.5, start + share * way, end - way * (1 - share))


def _heaviside(x: jax.Array, values: jax.Array) -> jax.Array:
    return jnp.where(x == 0, values, (x > 0).astype(x.dtype))


def _ldexp(x: jax.Array, exponent: jax.Array) -> jax.Array:
    return x * jnp.exp2(exponent)


for _op, _function in {
    aten.remainder.Tensor: jnp.remainder,
    aten.remainder.Scalar: jnp.remainder,
    aten.remainder.Scalar_Tensor: jnp.remainder,
    aten.fmod.Tensor: jnp.fmod,
    aten.fmod.Scalar: jnp.fmod,
    aten.maximum.default: jnp.maximum,
    aten.minimum.default: jnp.minimum,
    aten.fmax.default: jnp.fmax,
    aten.fmin.default: jnp.fmin,
    aten.hypot.default: jnp.hypot,
    aten.heaviside.default: _heaviside,
    aten.gcd.default: jnp.gcd,
    aten.lcm.default: jnp.lcm,
    aten.nextafter.default: jnp.nextafter,
}.items():
    lowers(_op)(binary(_function))

for _op, _function in {
    aten.atan2.default: jnp.arctan2,
    aten.copysign.Tensor: jnp.copysign,
    aten.copysign.Scalar: jnp.copysign,
    aten.logaddexp.default: jnp.logaddexp,
    aten.logaddexp2.default: jnp.logaddexp2,
    aten.ldexp.Tensor: _ldexp,
}.items():
    lowers(_op)(float_binary(_function))
