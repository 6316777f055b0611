"""Special functions. JAX's own where they are as exact as PyTorch's."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import torch
from jax.scipy import special

from ._dtype import float_binary, float_unary, widened
from ._table import lowers

aten = torch.ops.aten


def _lgamma(x: jax.Array) -> jax.Array:
    return jnp.where(jnp.isinf(x), jnp.inf, jax.lax.lgamma(x))


def _digamma(x: jax.Array) -> jax.Array:
    # at the pole of zero PyTorch keeps the sign of the side
    return jnp.where(x == 0, jnp.copysign(jnp.full_like(x, jnp.inf), -x), jax.lax.digamma(x))


def _entr(x: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(x), x, special.entr(x))


def _xlogy(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(y), jnp.nan, jnp.where(x == 0, 0, x * jnp.log(y)))


def _xlog1py(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.where(jnp.isnan(y), jnp.nan, jnp.where(x == 0, 0, x * jnp.log1p(y)))


def _erfcx(x: jax.Array) -> jax.Array:
    """`exp(x**2) * erfc(x)`; far to the right, where both factors leave the range of floats, a continued fraction."""
    near = jnp.clip(x, -10.0, 3.0)
    square = near * near
    direct = jnp.exp(square) * jax.lax.erfc(near)
    far = jnp.maximum(x, 3.0)
    fraction = far
    for term in range(_ERFCX_TERMS, 0, -1):
        fraction = far + (term / 2) / fraction
    right = (1 / math.sqrt(math.pi)) / fraction
    return jnp.where(jnp.isnan(x), x, jnp.where(x > 3.0, right, jnp.where(x < -10.0, jnp.inf, direct)))


_ERFCX_TERMS = 30


def _spherical_bessel_j0(x: jax.Array) -> jax.Array:
    return jnp.where(jnp.isinf(x), 0, jnp.sinc(x / math.pi))


# Hurwitz' zeta function of less than the negative of this is NaN; PyTorch adds up one term per unit
_ZETA_STEPS = 10_000


def _zeta(s: jax.Array, q: jax.Array) -> jax.Array:
    """Hurwitz' zeta function; JAX has it right of zero, the terms left of zero are added up one by one."""
    s, q = jnp.broadcast_arrays(s, q)
    terms = jnp.minimum(jnp.max(jnp.floor(1 - q), initial=0, where=jnp.isfinite(q)), _ZETA_STEPS).astype(jnp.int32)

    def add(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, at = state
        left = at <= 0
        return jnp.where(left, total + at**-s, total), jnp.where(left, at + 1, at)

    total, at = jax.lax.fori_loop(0, terms, add, (jnp.zeros_like(q), q))
    value = total + special.zeta(s, jnp.where(at > 0, at, 1))
    pole, undefined = (q <= 0) & (q == jnp.floor(q)), (q <= 0) & (s != jnp.floor(s))
    value = jnp.where(undefined | (q < -_ZETA_STEPS) | jnp.isnan(q) | (s < 1), jnp.nan, value)
    return jnp.where((s == 1) | ((s > 1) & pole), jnp.inf, value)


def _trigamma(x: jax.Array) -> jax.Array:
    """The derivative of `digamma`: reflected to the right half, moved there by recurrence to where its series holds."""
    left = x < 0.5
    sine = jnp.sin(math.pi * x)
    right = jnp.where(left, 1 - x, x)
    total = jnp.zeros_like(x)
    for _ in range(6):
        total = total + 1 / (right * right)
        right = right + 1
    square = 1 / (right * right)
    total = total + (1 + 1 / (2 * right) + square * (1 / 6 - square * (1 / 30 - square / 42))) / right
    return jnp.where(left, (math.pi / sine) ** 2 - total, total)


@lowers(aten.polygamma.default)
def _polygamma(order: int, x: jax.Array) -> jax.Array:
    x = widened(x)
    if order < 2:
        return _trigamma(x) if order else _digamma(x)
    sign = -1 if order % 2 == 0 else 1
    return sign * math.factorial(order) * _zeta(jnp.asarray(order + 1, x.dtype), x)


@lowers(aten.mvlgamma.default)
def _mvlgamma(x: jax.Array, p: int) -> jax.Array:
    x = widened(x)
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return sum((_lgamma(x - i / 2) for i in range(p)), jnp.full_like(x, constant))


for _op, _function in {
    aten.digamma.default: _digamma,
    aten.erf.default: jax.lax.erf,
    aten.erfc.default: jax.lax.erfc,
    aten.erfinv.default: jax.lax.erf_inv,
    aten.i0.default: special.i0,
    aten.special_i0e.default: special.i0e,
    aten.special_i1.default: special.i1,
    aten.special_i1e.default: special.i1e,
    aten.special_modified_bessel_i0.default: special.i0,
    aten.special_modified_bessel_i1.default: special.i1,
    aten.lgamma.default: _lgamma,
    aten.special_entr.default: _entr,
    aten.special_erfcx.default: _erfcx,
    aten.special_log_ndtr.default: special.log_ndtr,
    aten.special_ndtri.default: special.ndtri,
    aten.special_spherical_bessel_j0.default: _spherical_bessel_j0,
}.items():
    lowers(_op)(float_unary(_function))

for _op, _function in {
    aten.igamma.default: special.gammainc,
    aten.igammac.default: special.gammaincc,
    aten.special_xlog1py.default: _xlog1py,
    aten.special_xlog1py.other_scalar: _xlog1py,
    aten.special_xlog1py.self_scalar: _xlog1py,
    aten.special_zeta.default: _zeta,
    aten.special_zeta.other_scalar: _zeta,
    aten.special_zeta.self_scalar: _zeta,
    aten.xlogy.Tensor: _xlogy,
    aten.xlogy.Scalar_Other: _xlogy,
    aten.xlogy.Scalar_Self: _xlogy,
}.items():
    lowers(_op)(float_binary(_function))
