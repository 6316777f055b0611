"""Views of a tensor, and what joins and splits tensors. Everything here is a copy in XLA, or free."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ...runtime import jax_dtype
from ._context import current
from ._dtype import announced_shape, cast, normal_axes, normal_axis, result_dtype
from ._operand import Position
from ._table import lowers

aten = torch.ops.aten


@lowers(
    aten.alias.default,
    aten.alias_copy.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.detach_copy.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten._lazy_clone.default,
    aten._pin_memory.default,
    # a JAX array is conjugated or negated at once, so there is nothing left to resolve
    aten.resolve_conj.default,
    aten.resolve_neg.default,
)
def _identity(x: jax.Array, *_unused: object, **_options: object) -> jax.Array:
    return x


@lowers(aten._to_copy.default)
def _to_copy(x: jax.Array, *, dtype: torch.dtype | None = None, **_options: object) -> jax.Array:
    if dtype is None:
        return x
    kind = jax_dtype(dtype)
    if _narrows_what_is_given(x, kind):
        if x.ndim == 2 and x.size >= _LARGE_WEIGHT:
            # what autocast does to a weight: left alone, the compiler reads the whole float32 weight in each of the products
            # that use its copy. A convolution's weight changes its layout on the way, in one operation with the cast
            return lax.optimization_barrier(_rounded_first(x, kind))
        if x.ndim == 4 and x.size >= _LARGE_IMAGES:
            return _rounded_first(x, kind)
    return cast(x, kind)


def _narrows_what_is_given(x: jax.Array, kind: jnp.dtype) -> bool:
    """Whether a program for TPU rounds an argument of its own to a narrower dtype."""
    source = current().source(0)
    is_given = current().platform == "tpu" and source is not None and source.op == "placeholder"
    return is_given and jnp.issubdtype(x.dtype, jnp.floating) and kind.itemsize < x.dtype.itemsize


def _rounded_first(x: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """A copy that a fusion makes: at two thirds (v5e) or half (v6e) of the cycles of a conversion that stands alone."""
    if dtype != jnp.bfloat16:
        return cast(x, dtype)  # rounding to fewer bits of exponent makes zeros of the smallest numbers
    kept = jnp.finfo(dtype)
    return lax.reduce_precision(x, kept.nexp, kept.nmant).astype(dtype)


_LARGE_WEIGHT = 20_000_000
"""Elements from which on the copy pays: for a vocabulary's table; for the layers of GPT-2 it costs more than it saves."""

_LARGE_IMAGES = 4_000_000
"""Numbers of a batch of images, or of all weights of a convolution, from which on their conversion is worth a thought."""


@lowers(
    aten.view.default,
    aten.view_copy.default,
    aten.reshape.default,
    aten._unsafe_view.default,
    aten._reshape_copy.default,
    aten._reshape_alias.default,
    aten._reshape_alias_copy.default,
)
def _view(x: jax.Array, size: Sequence[int], _stride: Sequence[int] = ()) -> jax.Array:
    return jnp.reshape(x, tuple(size))


@lowers(aten.view_as.default, aten.reshape_as.default)
def _view_as(x: jax.Array, other: jax.Array) -> jax.Array:
    return jnp.reshape(x, other.shape)


@lowers(aten.view.dtype, aten.view_copy.dtype)
def _view_dtype(x: jax.Array, dtype: torch.dtype) -> jax.Array:
    target = jax_dtype(dtype)
    old, new = x.dtype.itemsize, target.itemsize
    if old == new:
        return jax.lax.bitcast_convert_type(x, target)
    if old > new:
        split = jax.lax.bitcast_convert_type(x, target)
        return split.reshape(*x.shape[:-1], x.shape[-1] * (old // new))
    grouped = x.reshape(*x.shape[:-1], x.shape[-1] // (new // old), new // old)
    return jax.lax.bitcast_convert_type(grouped, target)


@lowers(aten.t.default, aten.t_copy.default, aten.numpy_T.default)
def _t(x: jax.Array) -> jax.Array:
    return x.T


@lowers(aten.transpose.int, aten.transpose_copy.int)
def _transpose(x: jax.Array, dim0: int, dim1: int) -> jax.Array:
    return jnp.swapaxes(x, dim0, dim1) if x.ndim else x


@lowers(aten.permute.default, aten.permute_copy.default)
def _permute(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.transpose(x, tuple(dims))


@lowers(aten.movedim.intlist, aten.movedim.int)
def _movedim(x: jax.Array, source: int | Sequence[int], destination: int | Sequence[int]) -> jax.Array:
    return jnp.moveaxis(x, source, destination)


@lowers(aten.expand.default, aten.expand_copy.default)
def _expand(x: jax.Array, size: Sequence[int], *, implicit: bool = False) -> jax.Array:
    own = (1,) * (len(size) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(o if s == -1 else s for s, o in zip(size, own, strict=True)))


@lowers(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def _unsqueeze(x: jax.Array, dim: int) -> jax.Array:
    return jnp.expand_dims(x, dim)


@lowers(
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.squeeze_copy.default,
    aten.squeeze_copy.dim,
    aten.squeeze_copy.dims,
)
def _squeeze(x: jax.Array, dim: int | Sequence[int] | None = None) -> jax.Array:
    axes = range(x.ndim) if dim is None else _listed_axes(dim, x.ndim)
    return jnp.squeeze(x, tuple(a for a in axes if x.shape[a] == 1))


def _listed_axes(dim: int | Sequence[int], rank: int) -> tuple[int, ...]:
    empty = not isinstance(dim, int) and not dim
    return () if empty else normal_axes(dim, rank)


def is_computed(number: Position | None) -> bool:
    """Whether a position is known only when the program runs: `batch_idx`, or what `.item()` gave."""
    return isinstance(number, jax.Array)


def from_start(position: Position, length: int) -> Any:
    """`position` counted from the start of a dimension."""
    return jnp.where(position < 0, position + length, position) if is_computed(position) else position % max(length, 1)


def require_inside(index: Position, length: int) -> None:
    """Have the host raise where a computed index of one element is outside; XLA would take the last one there."""
    if is_computed(index):
        current().require_in_range(jnp.asarray(index), length, low=-length)


@lowers(aten.select.int, aten.select_copy.int)
def _select(x: jax.Array, dim: int, index: Position) -> jax.Array:
    axis = normal_axis(dim, x.ndim)
    if is_computed(index):
        require_inside(index, x.shape[axis])
        return jax.lax.dynamic_index_in_dim(x, from_start(index, x.shape[axis]), axis, keepdims=False)
    assert isinstance(index, int)
    return jax.lax.index_in_dim(x, index, normal_axis(dim, x.ndim), keepdims=False)


def slice_bounds(start: int | None, end: int | None, length: int) -> tuple[int, int]:
    """Bounds of a slice as PyTorch reads them: negative ones count from the end, all are clipped."""
    low = 0 if start is None else start
    high = length if end is None else end
    low = min(max(low + length if low < 0 else low, 0), length)
    high = min(max(high + length if high < 0 else high, low), length)
    return low, high


@lowers(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(x: jax.Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> jax.Array:
    axis = normal_axis(dim, x.ndim)
    if is_computed(start):
        assert step == 1, "a slice with a step whose start is computed passed capture"
        length = math.prod(announced_shape()) * x.shape[axis] // max(x.size, 1)
        return jax.lax.dynamic_slice_in_dim(x, from_start(start, x.shape[axis]), length, axis)
    low, high = slice_bounds(start, end, x.shape[axis])
    return jax.lax.slice_in_dim(x, low, high, step, axis)


@lowers(aten.narrow.default, aten.narrow_copy.default)
def _narrow(x: jax.Array, dim: int, start: int, length: int) -> jax.Array:
    axis = normal_axis(dim, x.ndim)
    low = start + x.shape[axis] if start < 0 else start
    return jax.lax.slice_in_dim(x, low, low + length, 1, axis)


@lowers(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def _split(x: jax.Array, split_size: int, dim: int = 0) -> tuple[jax.Array, ...]:
    axis = normal_axis(dim, x.ndim)
    length = x.shape[axis]
    if length == 0:
        return (x,)
    starts = range(0, length, split_size)
    return tuple(jax.lax.slice_in_dim(x, s, min(s + split_size, length), 1, axis) for s in starts)


@lowers(aten.split_with_sizes.default, aten.split_with_sizes_copy.default, aten.unsafe_split_with_sizes.default)
def _split_with_sizes(x: jax.Array, split_sizes: Sequence[int], dim: int = 0) -> tuple[jax.Array, ...]:
    axis = normal_axis(dim, x.ndim)
    parts, start = [], 0
    for size in split_sizes:
        parts.append(jax.lax.slice_in_dim(x, start, start + size, 1, axis))
        start += size
    return tuple(parts)


@lowers(aten.chunk.default, aten.unsafe_chunk.default)
def _chunk(x: jax.Array, chunks: int, dim: int = 0) -> tuple[jax.Array, ...]:
    return _split(x, -(-x.shape[dim] // chunks), dim)


@lowers(aten.unbind.int, aten.unbind_copy.int)
def _unbind(x: jax.Array, dim: int = 0) -> tuple[jax.Array, ...]:
    axis = normal_axis(dim, x.ndim)
    return tuple(jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))


@lowers(aten.cat.default, aten.concat.default)
def _cat(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    dtype = result_dtype(*tensors)
    # an empty vector joins with anything
    filled = [t for t in tensors if t.shape != (0,)] or list(tensors[:1])
    return jnp.concatenate([t.astype(dtype) for t in filled], axis=dim)


@lowers(aten.stack.default, aten._stack.default)
def _stack_tensors(tensors: Sequence[jax.Array], dim: int = 0) -> jax.Array:
    dtype = result_dtype(*tensors)
    return jnp.stack([t.astype(dtype) for t in tensors], axis=dim)
