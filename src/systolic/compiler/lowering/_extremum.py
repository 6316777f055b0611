"""The largest and the smallest, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import torch

from ._dtype import normal_axes, normal_axis
from ._table import lowers

aten = torch.ops.aten

Reduce = Callable[..., jax.Array]
Pair = tuple[jax.Array, jax.Array]


def _over_all(reduce: Reduce) -> Reduce:
    return lambda x: reduce(x)


def _over_dims(reduce: Reduce) -> Reduce:
    def lowering(x: jax.Array, dim: Sequence[int] = (), keepdim: bool = False) -> jax.Array:
        return reduce(x, normal_axes(dim, x.ndim), keepdims=keepdim)

    return lowering


def _position(find: Reduce, x: jax.Array, dim: int | None, keepdim: bool) -> jax.Array:
    """Position of the first extremum (of the first nan, when there is one)."""
    if x.ndim == 0:
        return jnp.zeros((), jnp.int32)
    axis = 0 if dim is None else normal_axis(dim, x.ndim)
    rank = x.ndim
    if x.dtype == jnp.bool_:
        x = x.astype(jnp.int32)
    found = find(x.reshape(-1) if dim is None else x, axis, jnp.int32)
    if not keepdim:
        return found
    return found.reshape((1,) * rank) if dim is None else jnp.expand_dims(found, axis)


def _positions(find: Reduce) -> Reduce:
    def lowering(x: jax.Array, dim: int | None = None, keepdim: bool = False) -> jax.Array:
        return _position(find, x, dim, keepdim)

    return lowering


def _with_positions(reduce: Reduce, find: Reduce) -> Callable[..., Pair]:
    def lowering(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
        return reduce(x, normal_axes(dim, x.ndim), keepdims=keepdim), _position(find, x, dim, keepdim)

    return lowering


@lowers(aten.aminmax.default, aten._aminmax.default)
def _aminmax(x: jax.Array, *, dim: int | None = None, keepdim: bool = False) -> Pair:
    axes = normal_axes(dim, x.ndim)
    return jnp.min(x, axes, keepdims=keepdim), jnp.max(x, axes, keepdims=keepdim)


@lowers(aten._aminmax.dim)
def _aminmax_dim(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    return _aminmax(x, dim=dim, keepdim=keepdim)


lowers(aten.max.default)(_over_all(jnp.max))
lowers(aten.min.default)(_over_all(jnp.min))
lowers(aten.amax.default)(_over_dims(jnp.max))
lowers(aten.amin.default)(_over_dims(jnp.min))
lowers(aten.argmax.default)(_positions(jax.lax.argmax))
lowers(aten.argmin.default)(_positions(jax.lax.argmin))
lowers(aten.max.dim)(_with_positions(jnp.max, jax.lax.argmax))
lowers(aten.min.dim)(_with_positions(jnp.min, jax.lax.argmin))
