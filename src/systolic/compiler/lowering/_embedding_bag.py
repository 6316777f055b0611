"""Sums, means and maxima over bags of embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._embedding import embedding_dense_backward
from ._pullback import index32, wide
from ._table import lowers

aten = torch.ops.aten

_MEAN, _MAX = 1, 2


def _bags(offsets: jax.Array, count: int, last: bool) -> tuple[jax.Array, int]:
    """The bag of each of `count` indices, and how many bags there are."""
    starts = offsets[:-1] if last else offsets
    places = jnp.arange(count, dtype=starts.dtype)
    return (jnp.searchsorted(starts, places, side="right") - 1).astype(jnp.int32), starts.shape[0]


def _require_inside(weight: jax.Array, indices: jax.Array, offsets: jax.Array) -> None:
    current().require_in_range(indices, weight.shape[0])
    if offsets.size:
        current().require_in_range(offsets[0], 1, what="first offset")
        current().require_in_range(offsets[-1], indices.shape[0] + 1, what="last offset")


def _resized(values: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Values saved for the backward, whose length in PyTorch varies with the path it took: cut, or filled with zeros."""
    kept = values[tuple(slice(size) for size in shape)]
    return jnp.pad(kept, [(0, size - have) for size, have in zip(shape, kept.shape, strict=True)])


@lowers(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    weight: jax.Array,
    indices: jax.Array,
    offsets: jax.Array,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: jax.Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The reduced bags; each index's bag; the size of each bag; the row that each maximum came from."""
    _require_inside(weight, indices, offsets)
    rows = index32(indices, weight.shape[0])
    bag, bags = _bags(offsets, rows.shape[0], include_last_offset)
    kept = rows != (padding_idx % weight.shape[0] if padding_idx >= 0 else -1)
    sizes = jnp.zeros(bags, jnp.int32).at[bag].add(kept.astype(jnp.int32))
    picked = wide(jnp.take(weight, rows, axis=0))
    if mode == _MAX:
        out, origin = _maxima(picked, rows, jnp.where(kept, bag, bags), bags)
    else:
        if per_sample_weights is not None:
            picked = picked * wide(per_sample_weights)[:, None]
        out = jnp.zeros((bags, weight.shape[1]), picked.dtype).at[bag].add(jnp.where(kept[:, None], picked, 0))
        origin = jnp.zeros((bags, weight.shape[1]), jnp.int32)
        if mode == _MEAN:
            out = out / jnp.maximum(sizes, 1)[:, None].astype(out.dtype)
    _, *saved = current().output
    shapes = [tuple(value.shape) for value in saved]
    origin = origin if len(shapes[2]) == 2 else origin[:, 0]
    return out, _resized(bag, shapes[0]), _resized(sizes, shapes[1]), _resized(origin, shapes[2])


def _maxima(picked: jax.Array, rows: jax.Array, bag: jax.Array, bags: int) -> tuple[jax.Array, jax.Array]:
    """The largest element of each bag (0 for an empty one) and the first row that has it (-1)."""
    best = jnp.full((bags, picked.shape[1]), -jnp.inf, picked.dtype).at[bag].max(picked, mode="drop")
    count = rows.shape[0]
    hit = picked == best.at[bag].get(mode="fill")
    place = jnp.where(hit, jnp.arange(count, dtype=jnp.int32)[:, None], count)
    first = jnp.full(best.shape, count, jnp.int32).at[bag].min(place, mode="drop")
    origin = jnp.where(first < count, rows.at[first].get(mode="fill", fill_value=0), -1)
    return jnp.where(first < count, best, 0), origin


@lowers(aten._embedding_bag_dense_backward.default)
def embedding_bag_dense_backward(
    grad: jax.Array,
    indices: jax.Array,
    offset2bag: jax.Array,
    bag_size: jax.Array,
    maximum_indices: jax.Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: jax.Array | None,
    padding_idx: int = -1,
) -> jax.Array:
    """Gradient of the table."""
    values = wide(grad)
    if mode == _MAX:
        # one past the table: dropped by the scatter
        rows = jnp.where(maximum_indices < 0, num_weights, maximum_indices)
        columns = jnp.arange(values.shape[1], dtype=jnp.int32)
        total = jnp.zeros((num_weights, values.shape[1]), values.dtype)
        return total.at[rows, columns].add(values, mode="drop").astype(grad.dtype)
    bag = index32(offset2bag, values.shape[0])
    spread = values[bag]
    if mode == _MEAN:
        spread = spread / jnp.maximum(bag_size, 1)[bag][:, None].astype(values.dtype)
    if per_sample_weights is not None:
        spread = spread * wide(per_sample_weights)[:, None]
    return embedding_dense_backward(spread, indices, num_weights, padding_idx, scale_grad_by_freq)


@lowers(aten._embedding_bag_backward.default)
def embedding_bag_backward(
    grad: jax.Array,
    indices: jax.Array,
    offsets: jax.Array,
    offset2bag: jax.Array,
    bag_size: jax.Array,
    maximum_indices: jax.Array,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: jax.Array | None,
    padding_idx: int = -1,
) -> jax.Array:
    """Gradient of the table; a sparse one is dense here, as XLA has no sparse tensors."""
    bag = offset2bag if offset2bag.shape[0] else _bags(offsets, indices.shape[0], False)[0]
    return embedding_bag_dense_backward(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
    )


@lowers(aten._embedding_bag_per_sample_weights_backward.default)
def per_sample_weights_backward(
    grad: jax.Array,
    weight: jax.Array,
    indices: jax.Array,
    offsets: jax.Array,
    offset2bag: jax.Array,
    mode: int,
    padding_idx: int = -1,
) -> jax.Array:
    """Gradient of the weights: each row times its bag's gradient."""
    rows = index32(indices, weight.shape[0])
    bag = offset2bag if offset2bag.shape[0] else _bags(offsets, rows.shape[0], False)[0]
    out = (wide(jnp.take(weight, rows, axis=0)) * wide(grad)[bag]).sum(-1)
    return jnp.where(rows == padding_idx, 0, out) if padding_idx >= 0 else out
