"""Sums, means, products and what else folds a dimension away."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import torch

from ._column_sums import total
from ._dtype import announced_dtype, as_array, cast, compute_dtype, normal_axes, promoted
from ._operand import Order
from ._table import lowers

aten = torch.ops.aten

Dims = int | Sequence[int] | None


def _accumulated(x: jax.Array) -> jax.Array:
    """`x` in the dtype in which PyTorch adds up towards the announced one."""
    return cast(x, compute_dtype(announced_dtype()))


@lowers(aten.sum.default)
def _sum_all(x: jax.Array, *, dtype: torch.dtype | None = None) -> jax.Array:
    return jnp.sum(_accumulated(x))


@lowers(aten.sum.dim_IntList)
def _sum(x: jax.Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    return total(_accumulated(x), normal_axes(dim, x.ndim), keepdim)


@lowers(aten.nansum.default)
def _nansum(x: jax.Array, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = _accumulated(x)
    return jnp.sum(jnp.where(jnp.isnan(x), 0, x), normal_axes(dim, x.ndim), keepdims=keepdim)


@lowers(aten.mean.default)
def _mean_all(x: jax.Array, *, dtype: torch.dtype | None = None) -> jax.Array:
    return _mean(x, None)


@lowers(aten.mean.dim)
def _mean(x: jax.Array, dim: Dims, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    x = _accumulated(x)
    axes = normal_axes(dim, x.ndim)
    return total(x, axes, keepdim) / _count(x, axes)


@lowers(aten.histc.default)
def _histogram(x: jax.Array, bins: int = 100, min: float = 0, max: float = 0) -> jax.Array:
    values = x.reshape(-1)
    low, high = (values.min(), values.max()) if min == max else (jnp.asarray(min, x.dtype), jnp.asarray(max, x.dtype))
    low, high = jnp.where(low == high, low - 1, low), jnp.where(low == high, high + 1, high)
    place = jnp.clip(jnp.floor((values - low) / (high - low) * bins), 0, bins - 1).astype(jnp.int32)
    inside = (values >= low) & (values <= high)
    return jnp.zeros(bins, x.dtype).at[place].add(inside.astype(x.dtype))


def _count(x: jax.Array, axes: Sequence[int]) -> int:
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    return count


@lowers(aten.prod.default)
def _prod_all(x: jax.Array, *, dtype: torch.dtype | None = None) -> jax.Array:
    return jnp.prod(_accumulated(x))


@lowers(aten.prod.dim_int)
def _prod(x: jax.Array, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> jax.Array:
    return jnp.prod(_accumulated(x), normal_axes(dim, x.ndim), keepdims=keepdim)


def _moments(x: jax.Array, dim: Dims, correction: float | None, keepdim: bool) -> tuple[jax.Array, jax.Array]:
    x = as_array(x, compute_dtype(x.dtype))
    axes = normal_axes(dim, x.ndim)
    count = _count(x, axes)
    mean = jnp.sum(x, axes, keepdims=True) / count
    distance = x - mean
    squares = distance.real**2 + distance.imag**2 if jnp.iscomplexobj(x) else distance * distance
    total = jnp.sum(squares, axes, keepdims=keepdim)
    divisor = max(0, count - (1 if correction is None else correction))
    return total / jnp.asarray(divisor, total.dtype), mean if keepdim else jnp.squeeze(mean, axes)


@lowers(aten.var_mean.correction)
def _var_mean(
    x: jax.Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    return _moments(x, dim, correction, keepdim)


@lowers(aten.std_mean.correction)
def _std_mean(
    x: jax.Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[jax.Array, jax.Array]:
    variance, mean = _moments(x, dim, correction, keepdim)
    return jnp.sqrt(variance), mean


@lowers(aten.var.correction)
def _var(x: jax.Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> jax.Array:
    return _moments(x, dim, correction, keepdim)[0]


@lowers(aten.std.correction)
def _std(x: jax.Array, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> jax.Array:
    return jnp.sqrt(_moments(x, dim, correction, keepdim)[0])


@lowers(aten.logsumexp.default)
def _logsumexp(x: jax.Array, dim: Dims, keepdim: bool = False) -> jax.Array:
    return jax.nn.logsumexp(_accumulated(x), normal_axes(dim, x.ndim), keepdims=keepdim)


def _logical(reduce: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    def lowering(x: jax.Array, dim: Dims = None, keepdim: bool = False) -> jax.Array:
        # for these two an empty list of dimensions means none, not all
        nothing = isinstance(dim, Sequence) and not dim
        return reduce(x != 0, () if nothing else normal_axes(dim, x.ndim), keepdims=keepdim)

    return lowering


lowers(aten.all.default, aten.all.dim, aten.all.dims, aten._is_all_true.default)(_logical(jnp.all))
lowers(aten.any.default, aten.any.dim, aten.any.dims, aten._is_any_true.default)(_logical(jnp.any))


@lowers(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def _count_nonzero(x: jax.Array, dim: Dims = None) -> jax.Array:
    return jnp.sum(x != 0, normal_axes(dim, x.ndim), dtype=jnp.int64)


def vector_norm(x: jax.Array, p: Order, axes: Sequence[int], keepdim: bool = False) -> jax.Array:
    """The p-norm of real numbers over some dimensions, in their own dtype."""
    order = 2.0 if p is None else float(p)
    axes, size = tuple(axes), jnp.abs(x)
    if order == float("inf"):
        return jnp.max(size, axes, keepdims=keepdim, initial=0)
    if order == -float("inf"):
        return jnp.min(size, axes, keepdims=keepdim)
    if order == 0:
        return jnp.sum((size != 0).astype(size.dtype), axes, keepdims=keepdim)
    if order == 1:
        return jnp.sum(size, axes, keepdims=keepdim)
    if order == 2:
        return jnp.sqrt(jnp.sum(size * size, axes, keepdims=keepdim))
    return jnp.sum(size**order, axes, keepdims=keepdim) ** (1 / order)


@lowers(
    aten.norm.Scalar,
    aten.norm.ScalarOpt_dim,
    aten.norm.ScalarOpt_dim_dtype,
    aten.linalg_vector_norm.default,
)
def _norm(x: jax.Array, p: Order = 2, dim: Dims = None, keepdim: bool = False, dtype: torch.dtype | None = None) -> jax.Array:
    x = jnp.abs(x) if jnp.iscomplexobj(x) else _accumulated(x)
    return vector_norm(x, p, normal_axes(dim, x.ndim), keepdim)


@lowers(aten.norm.ScalarOpt_dtype)
def _norm_as(x: jax.Array, p: Order, *, dtype: torch.dtype) -> jax.Array:
    return _norm(x, p)


@lowers(aten.trace.default)
def _trace(x: jax.Array) -> jax.Array:
    return jnp.trace(_accumulated(x))


@lowers(aten.dist.default)
def _dist(x: jax.Array, y: jax.Array, p: Order = 2) -> jax.Array:
    x, y = jnp.broadcast_arrays(*promoted(x, y))
    return vector_norm(x - y, p, range(x.ndim))
