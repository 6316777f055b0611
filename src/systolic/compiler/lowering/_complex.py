"""Complex numbers and their parts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._dtype import promoted, widened
from ._table import lowers

aten = torch.ops.aten


@lowers(
    aten._conj.default,
    aten._conj_copy.default,
    aten._conj_physical.default,
    aten.conj_physical.default,
)
def _conj(x: jax.Array) -> jax.Array:
    return jnp.conj(x) if jnp.iscomplexobj(x) else x


@lowers(aten.real.default)
def _real(x: jax.Array) -> jax.Array:
    return jnp.real(x)


@lowers(aten.imag.default)
def _imag(x: jax.Array) -> jax.Array:
    return jnp.imag(x)


@lowers(aten.view_as_real.default, aten.view_as_real_copy.default)
def _view_as_real(x: jax.Array) -> jax.Array:
    return jnp.stack([x.real, x.imag], -1)


@lowers(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def _view_as_complex(x: jax.Array) -> jax.Array:
    return jax.lax.complex(x[..., 0], x[..., 1])


@lowers(aten.complex.default)
def _complex(real: jax.Array, imag: jax.Array) -> jax.Array:
    return jax.lax.complex(*jnp.broadcast_arrays(real, imag))


@lowers(aten.polar.default)
def _polar(magnitude: jax.Array, angle: jax.Array) -> jax.Array:
    magnitude, angle = jnp.broadcast_arrays(*promoted(magnitude, angle))
    return jax.lax.complex(magnitude * jnp.cos(angle), magnitude * jnp.sin(angle))


@lowers(aten.angle.default)
def _angle(x: jax.Array) -> jax.Array:
    x = widened(x)
    if jnp.iscomplexobj(x):
        return jnp.angle(x)
    # -0.0 counts as positive
    return jnp.where(jnp.isnan(x), x, jnp.where(x < 0, jnp.asarray(jnp.pi, x.dtype), 0))
