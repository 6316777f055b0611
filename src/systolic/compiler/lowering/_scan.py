"""Running sums, products and extrema."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._dtype import announced_dtype, cast, compute_dtype, normal_axis, widened
from ._table import lowers

aten = torch.ops.aten

Pair = tuple[jax.Array, jax.Array]


@lowers(aten.cumsum.default)
def _cumsum(x: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = cast(x, compute_dtype(announced_dtype()))
    return jnp.cumsum(x, dim) if x.ndim else x


@lowers(aten.cumprod.default)
def _cumprod(x: jax.Array, dim: int, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = cast(x, compute_dtype(announced_dtype()))
    return jnp.cumprod(x, dim) if x.ndim else x


@lowers(aten.logcumsumexp.default, aten._logcumsumexp.default)
def _logcumsumexp(x: jax.Array, dim: int) -> jax.Array:
    x = widened(x)
    return jax.lax.cumlogsumexp(x, normal_axis(dim, x.ndim)) if x.ndim else x


def _running(better: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[..., tuple[jax.Array, jax.Array]]:
    def later(first: Pair, second: Pair) -> Pair:
        (left, at_left), (right, at_right) = first, second
        # of equals the last one counts, and nan beats everything
        chosen = (right != right) | ((left == left) & better(right, left))
        return jnp.where(chosen, right, left), jnp.where(chosen, at_right, at_left)

    def lowering(x: jax.Array, dim: int) -> tuple[jax.Array, jax.Array]:
        if x.ndim == 0:
            return x, jnp.zeros((), jnp.int32)
        axis = normal_axis(dim, x.ndim)
        index = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
        return jax.lax.associative_scan(later, (x, index), axis=axis)

    return lowering


lowers(aten.cummax.default)(_running(jnp.greater_equal))
lowers(aten.cummin.default)(_running(jnp.less_equal))
