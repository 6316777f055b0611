"""Functions of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._dtype import float_unary, promoted, unary, widened
from ._table import lowers

aten = torch.ops.aten


def _abs(x: jax.Array) -> jax.Array:
    return x if x.dtype == jnp.bool_ else jnp.abs(x)


def _sign(x: jax.Array) -> jax.Array:
    if x.dtype == jnp.bool_:
        return x
    # PyTorch gives 0 for nan
    return jnp.where(jnp.isnan(x), 0, jnp.sign(x)).astype(x.dtype)


def _sgn(x: jax.Array) -> jax.Array:
    return jnp.sign(x) if jnp.iscomplexobj(x) else _sign(x)


def _rounding(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda x: function(x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _frac(x: jax.Array) -> jax.Array:
    return x - jnp.trunc(x)


@lowers(aten.round.decimals)
def _round_decimals(x: jax.Array, decimals: int) -> jax.Array:
    (x,) = promoted(x)
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        return x
    scale = 10.0 ** abs(decimals)
    return jnp.round(x * scale) / scale if decimals >= 0 else jnp.round(x / scale) * scale


@lowers(aten.nan_to_num.default)
def _nan_to_num(x: jax.Array, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> jax.Array:
    return jnp.nan_to_num(x, nan=0.0 if nan is None else nan, posinf=posinf, neginf=neginf)


@lowers(aten.logit.default)
def _logit(x: jax.Array, eps: float | None = None) -> jax.Array:
    x = widened(x)
    if eps is not None:
        x = jnp.clip(x, jnp.asarray(eps, x.dtype), 1 - jnp.asarray(eps, x.dtype))
    return jnp.log(x / (1 - x))


@lowers(aten.logit_backward.default)
def _logit_backward(grad: jax.Array, x: jax.Array, eps: float | None = None) -> jax.Array:
    grad, x = promoted(grad, x)
    low = 0.0 if eps is None else eps
    outside = jnp.nan if eps is None else 0.0
    return jnp.where((x < low) | (x > 1 - low), outside, grad / (x * (1 - x)))


@lowers(aten.sigmoid_backward.default)
def _sigmoid_backward(grad: jax.Array, output: jax.Array) -> jax.Array:
    grad, output = promoted(grad, output)
    return grad * jnp.conj((1 - output) * output)


@lowers(aten.tanh_backward.default)
def _tanh_backward(grad: jax.Array, output: jax.Array) -> jax.Array:
    grad, output = promoted(grad, output)
    return grad * jnp.conj(1 - output * output)


@lowers(aten.frexp.Tensor)
def _frexp(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    mantissa, exponent = jnp.frexp(promoted(x)[0])
    return mantissa, exponent


@lowers(aten._local_scalar_dense.default)
def _value(x: jax.Array) -> jax.Array:
    """`.item()`: the number stays on the device, as a 0-dim array."""
    return x.reshape(())


def _sinc(x: jax.Array) -> jax.Array:
    """Of an infinite number nan, as in PyTorch; JAX 0.11 says zero."""
    return jnp.where(jnp.isinf(x), jnp.nan, jnp.sinc(x))


def _reciprocal(x: jax.Array) -> jax.Array:
    return 1 / x


for _op, _function in {
    aten.neg.default: jnp.negative,
    aten._neg_view.default: jnp.negative,
    aten._neg_view_copy.default: jnp.negative,
    aten.abs.default: _abs,
    aten.sign.default: _sign,
    aten.sgn.default: _sgn,
    aten.floor.default: _rounding(jnp.floor),
    aten.ceil.default: _rounding(jnp.ceil),
    aten.round.default: _rounding(jnp.round),
    aten.trunc.default: _rounding(jnp.trunc),
    aten.frac.default: _frac,
    aten.relu.default: lambda x: jnp.maximum(x, 0),
}.items():
    lowers(_op)(unary(_function))

for _op, _function in {
    aten.acos.default: jnp.arccos,
    aten.acosh.default: jnp.arccosh,
    aten.asin.default: jnp.arcsin,
    aten.asinh.default: jnp.arcsinh,
    aten.atan.default: jnp.arctan,
    aten.atanh.default: jnp.arctanh,
    aten.cos.default: jnp.cos,
    aten.cosh.default: jnp.cosh,
    aten.deg2rad.default: lambda x: x * (math.pi / 180),
    aten.rad2deg.default: lambda x: x * (180 / math.pi),
    aten.exp.default: jnp.exp,
    aten.exp2.default: jnp.exp2,
    aten.expm1.default: jnp.expm1,
    aten.log.default: jnp.log,
    aten.log10.default: jnp.log10,
    aten.log1p.default: jnp.log1p,
    aten.log2.default: jnp.log2,
    aten.reciprocal.default: _reciprocal,
    aten.rsqrt.default: jax.lax.rsqrt,
    aten.sigmoid.default: jax.nn.sigmoid,
    aten.sin.default: jnp.sin,
    aten.sinc.default: _sinc,
    aten.sinh.default: jnp.sinh,
    aten.sqrt.default: jnp.sqrt,
    aten.tan.default: jnp.tan,
    aten.tanh.default: jnp.tanh,
}.items():
    lowers(_op)(float_unary(_function))
