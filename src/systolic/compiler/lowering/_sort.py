"""Sorting, and what is found by sorting."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._dtype import normal_axis, promoted
from ._operand import Operand, Position
from ._table import lowers

aten = torch.ops.aten

Pair = tuple[jax.Array, jax.Array]


def _sorted(x: jax.Array, axis: int, descending: bool = False) -> Pair:
    """Values and their old places; equals keep their order, nan is larger than everything."""
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int32)
    if descending:
        # sorting the reversed tensor and reversing that keeps the order of equals
        values, index = _sorted(jnp.flip(x, axis), axis)
        return jnp.flip(values, axis), x.shape[axis] - 1 - jnp.flip(index, axis)
    index = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    values, index = jax.lax.sort((x, index), dimension=axis, is_stable=True, num_keys=1)
    return values, index


@lowers(aten.sort.default)
def _sort(x: jax.Array, dim: int = -1, descending: bool = False) -> Pair:
    return _sorted(x, normal_axis(dim, x.ndim), descending)


@lowers(aten.sort.stable)
def _sort_stable(x: jax.Array, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Pair:
    return _sorted(x, normal_axis(dim, x.ndim), descending)


@lowers(aten.argsort.default)
def _argsort(x: jax.Array, dim: int = -1, descending: bool = False) -> jax.Array:
    return _sorted(x, normal_axis(dim, x.ndim), descending)[1]


@lowers(aten.argsort.stable)
def _argsort_stable(x: jax.Array, *, stable: bool, dim: int = -1, descending: bool = False) -> jax.Array:
    return _sorted(x, normal_axis(dim, x.ndim), descending)[1]


@lowers(aten.topk.default)
def _topk(x: jax.Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int32)
    axis = normal_axis(dim, x.ndim)
    if largest:
        values, index = jax.lax.top_k(jnp.moveaxis(x, axis, -1), k)
        return jnp.moveaxis(values, -1, axis), jnp.moveaxis(index, -1, axis)
    # negating would put nan first, and overflow the smallest integer
    values, index = _sorted(x, axis)
    return jax.lax.slice_in_dim(values, 0, k, axis=axis), jax.lax.slice_in_dim(index, 0, k, axis=axis)


def _at(pair: Pair, place: Position, axis: int, keepdim: bool) -> Pair:
    """The values at one place (a number or an array of them) of a sorted dimension, and where they came from."""
    values, index = pair
    if values.ndim == 0:
        return pair
    shape = (*values.shape[:axis], 1, *values.shape[axis + 1 :])
    place = jnp.broadcast_to(jnp.asarray(place, jnp.int32), shape)
    found = (jnp.take_along_axis(values, place, axis), jnp.take_along_axis(index, place, axis))
    return found if keepdim else (jnp.squeeze(found[0], axis), jnp.squeeze(found[1], axis))


@lowers(aten.kthvalue.default)
def _kthvalue(x: jax.Array, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    axis = normal_axis(dim, x.ndim)
    return _at(_sorted(x, axis), k - 1, axis, keepdim)


@lowers(aten.median.dim)
def _median(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int32)
    axis = normal_axis(dim, x.ndim)
    nans = jnp.sum(x != x, axis, keepdims=True, dtype=jnp.int32)
    middle, first_nan = (x.shape[axis] - 1) // 2, x.shape[axis] - nans
    return _at(_sorted(x, axis), jnp.where(nans > 0, first_nan, middle), axis, keepdim)


@lowers(aten.nanmedian.dim)
def _nanmedian(x: jax.Array, dim: int, keepdim: bool = False) -> Pair:
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int32)
    axis = normal_axis(dim, x.ndim)
    numbers = jnp.sum(x == x, axis, keepdims=True, dtype=jnp.int32)
    return _at(_sorted(x, axis), jnp.maximum(numbers - 1, 0) // 2, axis, keepdim)


@lowers(aten.median.default)
def _median_all(x: jax.Array) -> jax.Array:
    return _median(x.reshape(-1), 0)[0]


@lowers(aten.nanmedian.default)
def _nanmedian_all(x: jax.Array) -> jax.Array:
    return _nanmedian(x.reshape(-1), 0)[0]


@lowers(aten.mode.default)
def _mode(x: jax.Array, dim: int = -1, keepdim: bool = False) -> Pair:
    if x.ndim == 0:
        return x, jnp.zeros((), jnp.int32)
    axis = normal_axis(dim, x.ndim)
    values, index = _sorted(x, axis)
    place = jax.lax.broadcasted_iota(jnp.int32, x.shape, axis)
    starts = (place == 0) | (values != jnp.roll(values, 1, axis))
    run = place - jax.lax.cummax(jnp.where(starts, place, 0), axis)
    # the first place at which the longest run is reached: the end of the smallest of the most frequent values
    longest = jnp.expand_dims(jax.lax.argmax(run, axis, jnp.int32), axis)
    return _at((values, index), longest, axis, keepdim)


@lowers(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def _searchsorted(
    sorted_sequence: jax.Array,
    wanted: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: jax.Array | None = None,
) -> jax.Array:
    sequence, wanted = promoted(sorted_sequence, wanted)
    if sorter is not None:
        sequence = jnp.take_along_axis(sequence, sorter, -1)
    side = side or ("right" if right else "left")
    if sequence.ndim == 1:
        return jnp.searchsorted(sequence, wanted, side)
    rows = sequence.reshape(-1, sequence.shape[-1])
    search = jax.vmap(lambda row, values: jnp.searchsorted(row, values, side))
    return search(rows, wanted.reshape(rows.shape[0], -1)).reshape(wanted.shape)


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar)
def _bucketize(wanted: Operand, boundaries: jax.Array, *, out_int32: bool = False, right: bool = False) -> jax.Array:
    return _searchsorted(boundaries, wanted, right=right)
