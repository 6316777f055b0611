"""`math` for JAX arrays: what the host computes of its numbers, and the program of numbers that are values."""

from __future__ import annotations

import math

import jax.numpy as jnp


class ArrayMath:
    """`math` for JAX arrays, as far as symbolic numbers use it."""

    trunc = staticmethod(lambda x: jnp.trunc(x).astype(jnp.int64))
    floor = staticmethod(lambda x: jnp.floor(x).astype(jnp.int64))
    ceil = staticmethod(lambda x: jnp.ceil(x).astype(jnp.int64))
    sqrt, cos, cosh, sin, sinh, tan, tanh = map(
        staticmethod, (jnp.sqrt, jnp.cos, jnp.cosh, jnp.sin, jnp.sinh, jnp.tan, jnp.tanh)
    )
    asin, acos, atan, exp, log, log2 = map(staticmethod, (jnp.arcsin, jnp.arccos, jnp.arctan, jnp.exp, jnp.log, jnp.log2))
    pow = staticmethod(jnp.power)
    inf, nan, pi, e = math.inf, math.nan, math.pi, math.e
