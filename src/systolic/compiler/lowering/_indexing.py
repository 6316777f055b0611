"""Reading and writing elements by index: advanced indexing, `index_select` and its kin, `take`, `put`, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._operand import Number, Operand
from ._pullback import index32
from ._scatter import reduce_at
from ._table import lowers

aten = torch.ops.aten

Indices = Sequence[jax.Array | None]


def _is_mask(index: jax.Array | None) -> bool:
    return index is not None and index.dtype in (jnp.bool_, jnp.uint8)


def _key(x: jax.Array, indices: Indices) -> tuple[Any, ...]:
    """`indices` as a NumPy index: None stands for a whole dimension."""
    return tuple(slice(None) if at is None else index32(at, size) for at, size in zip(indices, x.shape, strict=False))


def _require_inside(x: jax.Array, indices: Indices) -> None:
    """Check indices that may count from the end, one array (or None) for each of the first dimensions of `x`."""
    for at, size in zip(indices, x.shape, strict=False):
        if at is not None:
            current().require_in_range(at, size, low=-size)


@lowers(aten.index.Tensor)
def index(x: jax.Array, indices: Indices) -> jax.Array:
    """`x[indices]`."""
    out = unsafe_index(x, indices)
    if out.size:
        _require_inside(x, indices)
    return out


@lowers(aten._unsafe_index.Tensor)
def unsafe_index(x: jax.Array, indices: Indices) -> jax.Array:
    """`x[indices]`; positions outside `x` give NaN (or the smallest integer)."""
    if any(_is_mask(at) for at in indices):
        _refuse("x[mask] with a boolean mask", "x * mask, torch.where(mask, x, other) or x.masked_fill(~mask, value)")
    return x.at[_key(x, indices)].get(mode="fill")


@lowers(aten._unsafe_masked_index.default)
def unsafe_masked_index(x: jax.Array, mask: jax.Array, indices: Indices, fill: Number) -> jax.Array:
    """`x[indices]` where `mask` holds, `fill` elsewhere."""
    return jnp.where(mask, x.at[_key(x, indices)].get(mode="clip"), jnp.asarray(fill, x.dtype))


@lowers(aten._unsafe_masked_index_put_accumulate.default)
def unsafe_masked_index_put(x: jax.Array, mask: jax.Array, indices: Indices, values: jax.Array) -> jax.Array:
    """Add `values` to `x[indices]` where `mask` holds."""
    kept = jnp.where(mask, values, jnp.zeros((), x.dtype))
    return x.at[_key(x, indices)].add(kept, mode="drop")


@lowers(aten.index_put.default)
def index_put(x: jax.Array, indices: Indices, values: jax.Array, accumulate: bool = False) -> jax.Array:
    """`x` with `values` written at (or added to) `x[indices]`."""
    if x.size and not any(_is_mask(at) for at in indices):
        _require_inside(x, indices)
    return unsafe_index_put(x, indices, values, accumulate)


@lowers(aten._unsafe_index_put.default)
def unsafe_index_put(x: jax.Array, indices: Indices, values: jax.Array, accumulate: bool = False) -> jax.Array:
    """The same, where positions outside `x` are left out."""
    if any(_is_mask(at) for at in indices):
        return _mask_put(x, indices, values, accumulate)
    target = x.at[_key(x, indices)]
    values = values.astype(x.dtype)
    return target.add(values, mode="drop") if accumulate else target.set(values, mode="drop")


def _mask_put(x: jax.Array, indices: Indices, values: jax.Array, accumulate: bool) -> jax.Array:
    """Write at a mask: how many elements it selects is not known, but every element's place among them is."""
    if sum(at is not None for at in indices) != 1:
        _refuse("x[mask, index] = values", "torch.where, or integer indices throughout")
    start = next(i for i, at in enumerate(indices) if at is not None)
    mask = jnp.asarray(indices[start]) != 0
    after = x.ndim - start - mask.ndim
    trailing = x.shape[x.ndim - after :]
    spread = mask.reshape(*mask.shape, *(1,) * after)
    values = values.astype(x.dtype)
    axis = values.ndim - after - 1
    if axis < 0 or values.shape[axis] == 1:
        # one value for every selected element
        squeezed = values.squeeze(axis) if axis >= 0 else values
        leading = squeezed.shape[: max(axis, 0)]
        ones = (1,) * mask.ndim
        written = squeezed.reshape(*leading, *ones, *squeezed.shape[max(axis, 0) :])
        written = jnp.broadcast_to(written, x.shape)
    else:
        selected = mask.sum(dtype=jnp.int32)
        current().require_in_range(selected, values.shape[axis] + 1, low=values.shape[axis], what=_SELECTED)
        if not values.size:  # XLA takes nothing from nothing
            return x
        leading = values.shape[:axis]
        source = jnp.broadcast_to(values, (*leading, values.shape[axis], *trailing))
        written = jnp.take(source, _ranks(mask), axis=axis, mode="fill")
    return jnp.where(spread, x + written if accumulate else written, x)


_SELECTED = "number of elements that the mask selects"


def _ranks(mask: jax.Array) -> jax.Array:
    """For every element how many selected ones come before it in memory order."""
    flat = mask.reshape(-1)
    return (jnp.cumsum(flat, dtype=jnp.int32) - flat).reshape(mask.shape)


@lowers(aten.masked_scatter.default)
def masked_scatter(x: jax.Array, mask: jax.Array, source: jax.Array) -> jax.Array:
    """`x` with the selected elements replaced, in memory order, by the first ones of `source`."""
    shape = jnp.broadcast_shapes(x.shape, mask.shape)
    mask = jnp.broadcast_to(mask, shape)
    current().require_in_range(mask.sum(dtype=jnp.int32), source.size + 1, what=_SELECTED)
    if not source.size:  # XLA takes nothing from nothing
        return jnp.broadcast_to(x, shape)
    values = jnp.take(source.reshape(-1), _ranks(mask), mode="fill")
    return jnp.where(mask, values, jnp.broadcast_to(x, shape))


@lowers(aten.masked_scatter_backward.default)
def masked_scatter_backward(grad: jax.Array, mask: jax.Array, sizes: Sequence[int]) -> jax.Array:
    """The gradient of `source`: that of each selected element, in memory order, then zeros."""
    count = math.prod(sizes)
    mask = jnp.broadcast_to(mask, grad.shape)
    at = jnp.where(mask, _ranks(mask), count).reshape(-1)
    return jnp.zeros(count, grad.dtype).at[at].set(grad.reshape(-1), mode="drop").reshape(tuple(sizes))


@lowers(aten.index_select.default)
def index_select(x: jax.Array, dim: int, index: jax.Array) -> jax.Array:
    """The slices of `x` along `dim` at `index`."""
    current().require_in_range(index, _length(x, dim))
    if x.ndim == 0:
        return jnp.take(x.reshape(1), index32(index, 1), mode="fill").reshape(())
    return jnp.take(x, index32(index.reshape(-1), x.shape[dim]), axis=dim, mode="fill")


@lowers(aten.index_add.default)
def index_add(x: jax.Array, dim: int, index: jax.Array, source: jax.Array, alpha: Number = 1) -> jax.Array:
    """`x` with `alpha * source` added to its slices at `index`."""
    if x.size:
        current().require_in_range(index, _length(x, dim))
    values = source.astype(x.dtype) * jnp.asarray(alpha, x.dtype) if alpha != 1 else source.astype(x.dtype)
    return _slices(x, dim, index, values, lambda target, values: target.add(values, mode="drop"))


@lowers(aten.index_copy.default)
def index_copy(x: jax.Array, dim: int, index: jax.Array, source: jax.Array) -> jax.Array:
    """`x` with its slices at `index` replaced by those of `source`."""
    if x.size:
        current().require_in_range(index, _length(x, dim))
    return _slices(x, dim, index, source.astype(x.dtype), lambda target, values: target.set(values, mode="drop"))


@lowers(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: jax.Array, dim: int, index: jax.Array, value: Operand) -> jax.Array:
    """`x` with its slices at `index` filled with `value`."""
    if x.size:
        current().require_in_range(index, _length(x, dim), low=-_length(x, dim))
    fill = jnp.asarray(value, x.dtype)
    return _slices(x, dim, index, fill, lambda target, values: target.set(values, mode="drop"))


@lowers(aten.index_reduce.default)
def index_reduce(
    x: jax.Array, dim: int, index: jax.Array, source: jax.Array, reduce: str, include_self: bool = True
) -> jax.Array:
    """`x` with the slices of `source` reduced into those at `index`."""
    if x.size:
        current().require_in_range(index, _length(x, dim))
    rows, source = x.reshape(-1) if x.ndim == 0 else x, source.reshape(-1) if source.ndim == 0 else source
    key = (slice(None),) * (dim % rows.ndim) + (index32(index.reshape(-1), rows.shape[dim]),)
    return reduce_at(rows, key, source, reduce, include_self).reshape(x.shape)


def _length(x: jax.Array, dim: int) -> int:
    """The size of a dimension; a number is taken for a vector of one."""
    return x.shape[dim] if x.ndim else 1


def _slices(
    x: jax.Array, dim: int, index: jax.Array, values: jax.Array, write: Callable[[Any, jax.Array], jax.Array]
) -> jax.Array:
    rows = x.reshape(1) if x.ndim == 0 else x
    if x.ndim == 0:
        values = values.reshape(-1)
    key = (slice(None),) * (dim % rows.ndim) + (index32(index.reshape(-1), rows.shape[dim]),)
    return write(rows.at[key], values).reshape(x.shape)


@lowers(aten.take.default)
def take(x: jax.Array, index: jax.Array) -> jax.Array:
    """Elements of the flattened `x`."""
    current().require_in_range(index, x.size, low=-x.size)
    return jnp.take(x.reshape(-1), index32(index, x.size), mode="fill")


@lowers(aten.put.default)
def put(x: jax.Array, index: jax.Array, source: jax.Array, accumulate: bool = False) -> jax.Array:
    """`x` with elements of `source` written at (or added to) flat positions."""
    current().require_in_range(index, x.size, low=-x.size)
    target = x.reshape(-1).at[index32(index.reshape(-1), x.size)]
    values = source.reshape(-1).astype(x.dtype)
    return (target.add(values, mode="drop") if accumulate else target.set(values, mode="drop")).reshape(x.shape)


@lowers(aten.nonzero_static.default)
def nonzero_static(x: jax.Array, size: int, fill_value: int = -1) -> jax.Array:
    """The first `size` positions of non-zero elements."""
    if x.size == 0 or x.ndim == 0:
        return jnp.full((size, x.ndim), fill_value, jnp.int64)
    return jnp.stack(jnp.nonzero(x, size=size, fill_value=fill_value), axis=1)


@lowers(aten.masked_select.default)
def masked_select(x: jax.Array, mask: jax.Array) -> NoReturn:
    """Refused."""
    _refuse("torch.masked_select", "torch.where(mask, x, other), or multiply by the mask before reducing")


@lowers(aten.nonzero.default)
def nonzero(x: jax.Array) -> NoReturn:
    """Refused."""
    _refuse("torch.nonzero (and torch.where with one argument)", "torch.nonzero_static, or a mask")


@lowers(aten._unique.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default)
def unique(x: jax.Array, *_: object, **__: object) -> NoReturn:
    """Refused."""
    _refuse("torch.unique", "torch.bincount with a known number of classes, or do it in the data loader")


def _refuse(what: str, instead: str) -> NoReturn:
    raise ValueError(
        f"{what} gives a tensor whose shape depends on the values, and a compiled step has fixed shapes. Use {instead}."
    )
