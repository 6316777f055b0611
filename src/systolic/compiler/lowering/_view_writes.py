"""Windows, diagonals and strided views, and tensors with a view of them replaced.

Every gradient of a view is here too: zeros with the view replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._dtype import normal_axis
from ._memory import Places, storage_places
from ._operand import Position
from ._table import lowers
from ._views import from_start, is_computed, require_inside, slice_bounds

aten = torch.ops.aten

# up to so many slices stand for the windows of one tensor
_SLICES = 64


@lowers(aten.unfold.default, aten.unfold_copy.default)
def unfold(x: jax.Array, dimension: int, size: int, step: int) -> jax.Array:
    """Windows of `size` along a dimension, as a last dimension."""
    if x.ndim == 0:
        return x[None][:size]
    axis = normal_axis(dimension, x.ndim)
    count = (x.shape[axis] - size) // step + 1
    if min(count, size) > _SLICES:
        index = jnp.arange(count, dtype=jnp.int32)[:, None] * step + jnp.arange(size, dtype=jnp.int32)
        return jnp.moveaxis(jnp.take(x, index, axis=axis), axis + 1, -1)
    # slices cost a TPU far less than a gather does
    if count <= size:
        windows = [jax.lax.slice_in_dim(x, i * step, i * step + size, 1, axis) for i in range(count)]
        return jnp.moveaxis(jnp.stack(windows, axis), axis + 1, -1)
    last = (count - 1) * step + 1
    return jnp.stack([jax.lax.slice_in_dim(x, i, i + last, step, axis) for i in range(size)], -1)


@lowers(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(x: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    """The diagonals of the matrices over two dimensions, as a last dimension."""
    return jnp.diagonal(x, offset, dim1, dim2)


@lowers(aten.as_strided.default, aten.as_strided_copy.default)
def _as_strided(x: jax.Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> jax.Array:
    return _strided_view(_viewed_places(size, stride, storage_offset), size, stride)(x)


def _viewed_places(size: Sequence[int], stride: Sequence[int], offset: int | None) -> Places:
    """The places of a strided view of the first operand; PyTorch's tracer knows how that one lies in memory."""
    viewed = current().operand(0)
    return storage_places(viewed, size, stride, offset)


def _strided_view(places: Places, size: Sequence[int], stride: Sequence[int]) -> Callable[[jax.Array], jax.Array]:
    """Take elements by their position in memory."""
    assert places.reachable, "a strided view that reaches beyond its tensor passed capture"

    def view(x: jax.Array) -> jax.Array:
        flat = jnp.transpose(x, places.order).reshape(-1)
        at = places.index if places.index is not None else _strided_positions(size, stride, places.offset)
        return jnp.take(flat, at, axis=0)

    return view


def _strided_positions(size: Sequence[int], stride: Sequence[int], offset: int) -> jax.Array:
    """Position of each element of a strided view; computed by the program, so that no constant grows with the view."""
    positions = jnp.full(tuple(size), offset, jnp.int32)
    for axis, step in enumerate(stride):
        positions = positions + jax.lax.broadcasted_iota(jnp.int32, tuple(size), axis) * step
    return positions


def _replaced(x: jax.Array, source: jax.Array, view: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """`x` with the elements that `view` shows set to `source`."""
    positions = view(jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape))
    source = jnp.broadcast_to(source.astype(x.dtype), positions.shape)
    return x.reshape(-1).at[positions.reshape(-1)].set(source.reshape(-1)).reshape(x.shape)


@lowers(aten.slice_scatter.default)
def _slice_scatter(
    x: jax.Array,
    source: jax.Array,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> jax.Array:
    axis = normal_axis(dim, x.ndim)
    if is_computed(start):
        assert step == 1, "a slice with a step whose start is computed passed capture"
        return jax.lax.dynamic_update_slice_in_dim(x, source.astype(x.dtype), from_start(start, x.shape[axis]), axis)
    low, high = slice_bounds(start, end, x.shape[axis])
    source = source.astype(x.dtype)
    if step == 1:
        shape = (*x.shape[:axis], high - low, *x.shape[axis + 1 :])
        return jax.lax.dynamic_update_slice_in_dim(x, jnp.broadcast_to(source, shape), low, axis)
    where = (slice(None),) * axis + (slice(low, high, step),)
    return x.at[where].set(source)


@lowers(aten.select_scatter.default)
def _select_scatter(x: jax.Array, source: jax.Array, dim: int, index: Position) -> jax.Array:
    axis = normal_axis(dim, x.ndim)
    require_inside(index, x.shape[axis])
    row = jnp.expand_dims(source.astype(x.dtype), axis)
    return jax.lax.dynamic_update_slice_in_dim(x, row, from_start(index, x.shape[axis]), axis)


@lowers(aten.diagonal_scatter.default)
def _diagonal_scatter(x: jax.Array, source: jax.Array, offset: int = 0, dim1: int = 0, dim2: int = 1) -> jax.Array:
    return _replaced(x, source, lambda v: diagonal(v, offset, dim1, dim2))


@lowers(aten.as_strided_scatter.default)
def _as_strided_scatter(
    x: jax.Array, source: jax.Array, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> jax.Array:
    return _replaced(x, source, _strided_view(_viewed_places(size, stride, storage_offset), size, stride))


@lowers(aten.slice_backward.default)
def _slice_backward(grad: jax.Array, input_sizes: Sequence[int], dim: int, start: Any, end: Any, step: int) -> jax.Array:
    axis = normal_axis(dim, len(input_sizes))
    if is_computed(start):
        return _slice_scatter(jnp.zeros(tuple(input_sizes), grad.dtype), grad, axis, start, end, step)
    length = input_sizes[axis]
    low, _ = slice_bounds(start, end, length)
    count = grad.shape[axis]
    covered = (count - 1) * step + 1 if count else 0
    padding = [(0, 0, 0)] * grad.ndim
    padding[axis] = (low, length - low - covered, step - 1)
    return jax.lax.pad(grad, jnp.zeros((), grad.dtype), padding)


@lowers(aten.select_backward.default)
def _select_backward(grad: jax.Array, input_sizes: Sequence[int], dim: int, index: Position) -> jax.Array:
    axis = normal_axis(dim, len(input_sizes))
    low = from_start(index, input_sizes[axis])
    return _slice_backward(jnp.expand_dims(grad, axis), input_sizes, axis, low, low + 1, 1)


@lowers(aten.diagonal_backward.default)
def _diagonal_backward(grad: jax.Array, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> jax.Array:
    return _diagonal_scatter(jnp.zeros(tuple(input_sizes), grad.dtype), grad, offset, dim1, dim2)


@lowers(aten.unfold_backward.default)
def _unfold_backward(grad: jax.Array, input_sizes: Sequence[int], dim: int, size: int, step: int) -> jax.Array:
    shape = jax.ShapeDtypeStruct(tuple(input_sizes), grad.dtype)
    # windows overlap, and their gradients add up: the transpose of taking them
    return jax.linear_transpose(lambda x: unfold(x, dim, size, step), shape)(grad)[0]
