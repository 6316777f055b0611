"""`gather`, and `scatter` with each of its reductions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.typing import DTypeLike

from ._context import current
from ._operand import Operand
from ._pullback import index32
from ._table import lowers

aten = torch.ops.aten


@lowers(aten.gather.default)
def gather(x: jax.Array, dim: int, index: jax.Array, sparse_grad: bool = False) -> jax.Array:
    """The elements along `dim` at `index`, which may be smaller than `x` in the other dimensions."""
    if index.size == 0:
        # an empty index may have any number of dimensions
        return jnp.zeros(index.shape, x.dtype)
    current().require_in_range(index, x.shape[dim] if x.ndim else 1)
    if x.ndim == 0 or index.ndim == 0:
        return jnp.take(x.reshape(-1), index32(index, x.size), mode="fill")
    dim %= x.ndim
    kept = tuple(slice(None) if axis == dim else slice(size) for axis, size in enumerate(index.shape))
    return jnp.take_along_axis(x[kept], index32(index, x.shape[dim]), dim, mode="fill")


def _key(x: jax.Array, dim: int, index: jax.Array) -> tuple[jax.Array, ...]:
    """The position in `x` of each element of `index`, one array a dimension."""
    dim %= x.ndim
    return tuple(
        index32(index, x.shape[dim]) if axis == dim else jnp.arange(size, dtype=jnp.int32).reshape(_column(axis, index))
        for axis, size in enumerate(index.shape)
    )


def _column(axis: int, index: jax.Array) -> tuple[int, ...]:
    return tuple(-1 if other == axis else 1 for other in range(index.ndim))


def _prepared(x: jax.Array, dim: int, index: jax.Array, source: Operand) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`x`, `index`, checked, and the part of `source` that `index` covers, each with at least one dimension."""
    current().require_in_range(index, x.shape[dim] if x.ndim else 1)
    x, index = jnp.atleast_1d(x), jnp.atleast_1d(index)
    if index.size == 0:
        # an empty index may have any number of dimensions
        nothing = (0,) * x.ndim
        return x, jnp.zeros(nothing, jnp.int32), jnp.zeros(nothing, x.dtype)
    source = jnp.asarray(source, x.dtype)
    if source.ndim:
        source = source[tuple(slice(size) for size in index.shape)]
    return x, index, jnp.broadcast_to(source, index.shape)


@lowers(aten.scatter.src, aten.scatter.value)
def scatter(x: jax.Array, dim: int, index: jax.Array, source: Operand) -> jax.Array:
    """`x` with elements of `source` (or one number) written along `dim` at `index`."""
    rows, at, values = _prepared(x, dim, index, source)
    return rows.at[_key(rows, dim, at)].set(values, mode="drop").reshape(x.shape)


@lowers(aten.scatter_add.default)
def scatter_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` with elements of `source` added along `dim` at `index`."""
    rows, at, values = _prepared(x, dim, index, source)
    return rows.at[_key(rows, dim, at)].add(values, mode="drop").reshape(x.shape)


@lowers(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with(x: jax.Array, dim: int, index: jax.Array, source: Operand, *, reduce: str) -> jax.Array:
    """`x` with elements added to or multiplied by those of `source`."""
    rows, at, values = _prepared(x, dim, index, source)
    target = rows.at[_key(rows, dim, at)]
    out = target.add(values, mode="drop") if reduce == "add" else target.multiply(values, mode="drop")
    return out.reshape(x.shape)


@lowers(aten.scatter_reduce.two)
def scatter_reduce(
    x: jax.Array, dim: int, index: jax.Array, source: jax.Array, reduce: str, include_self: bool = True
) -> jax.Array:
    """`x` with elements of `source` reduced into it along `dim` at `index`."""
    rows, at, values = _prepared(x, dim, index, source)
    return reduce_at(rows, _key(rows, dim, at), values, reduce, include_self).reshape(x.shape)


def reduce_at(x: jax.Array, key: tuple[Any, ...], values: jax.Array, reduce: str, include_self: bool) -> jax.Array:
    """`x` with `values` reduced into `x[key]` by sum, prod, mean, amax or amin.

    Without `include_self` the elements that `key` names start from the reduction's neutral element.
    """
    values = values.astype(x.dtype)
    start = x if include_self else x.at[key].set(_neutral(reduce, x.dtype), mode="drop")
    target = start.at[key]
    if reduce == "sum":
        return target.add(values, mode="drop")
    if reduce == "prod":
        return target.multiply(values, mode="drop")
    if reduce == "amax":
        return target.max(values, mode="drop")
    if reduce == "amin":
        return target.min(values, mode="drop")
    count_type = jnp.int32 if x.dtype == jnp.bool_ else x.dtype
    counts = jnp.full(x.shape, int(include_self), count_type).at[key].add(1, mode="drop")
    total = target.add(values, mode="drop")
    divisor = jnp.maximum(counts, 1)
    return total // divisor if jnp.issubdtype(x.dtype, jnp.integer) else total / divisor


def _neutral(reduce: str, dtype: DTypeLike) -> jax.Array:
    """Neutral element that a reduction starts from."""
    if reduce in ("sum", "mean"):
        return jnp.zeros((), dtype)
    if reduce == "prod":
        return jnp.ones((), dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.asarray(-jnp.inf if reduce == "amax" else jnp.inf, dtype)
    if dtype == jnp.bool_:
        return jnp.asarray(reduce == "amin")
    limits = jnp.iinfo(dtype)
    return jnp.asarray(limits.min if reduce == "amax" else limits.max, dtype)
