"""The inverse of max pooling, and max pooling with random windows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._pooling import scatter_to_planes
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten


@lowers(aten.max_unpool2d.default)
def max_unpool2d(x: jax.Array, indices: jax.Array, output_size: Sequence[int]) -> jax.Array:
    """Put elements back to where a max pooling took them from; zero elsewhere."""
    return _put_back(x, indices, output_size)


@lowers(aten.max_unpool3d.default)
def max_unpool3d(
    x: jax.Array, indices: jax.Array, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> jax.Array:
    """Put elements back to where a max pooling took them from; zero elsewhere."""
    return _put_back(x, indices, output_size)


def _put_back(x: jax.Array, indices: jax.Array, plane: Sequence[int]) -> jax.Array:
    current().require_in_range(indices, math.prod(plane))
    return scatter_to_planes(x, indices, tuple(plane), add=False)


def _starts(samples: jax.Array, size: int, count: int, kernel: int) -> jax.Array:
    """Beginning of each of `count` windows of a dimension, for every sample [N, C]."""
    step = (size - kernel) / (count - 1) if count > 1 else 0.0
    places = jnp.arange(count - 1, dtype=samples.dtype)
    base = samples[..., None]
    inner = jnp.trunc((places + base) * step) - jnp.trunc(base * step)
    last = jnp.full((*samples.shape, 1), size - kernel, samples.dtype)
    return jnp.concatenate([inner, last], -1).astype(jnp.int32)


@lowers(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    x: jax.Array, kernel_size: Sequence[int], output_size: Sequence[int], random_samples: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Largest element of each window, whose places `random_samples` decides; also its flat position."""
    spatial = len(output_size)
    plane = x.shape[-spatial:]
    outer = x.shape[: x.ndim - spatial]
    # samples are [N, C, dims]; in two dimensions the first is the width's, in three the depth's
    columns = [random_samples[..., i].reshape(outer) for i in range(spatial)]
    columns = columns[::-1] if spatial == 2 else columns
    starts = [
        _starts(column, size, count, kernel)
        for column, size, count, kernel in zip(columns, plane, output_size, kernel_size, strict=True)
    ]
    flat = x.reshape(*outer, math.prod(plane))
    values, positions = [], []
    for offsets in itertools.product(*(range(kernel) for kernel in kernel_size)):
        at = jnp.zeros((*outer, *(1,) * spatial), jnp.int32)
        for axis, (start, offset) in enumerate(zip(starts, offsets, strict=True)):
            shape = [1] * spatial
            shape[axis] = output_size[axis]
            at = at * plane[axis] + (start + offset).reshape(*outer, *shape)
        at = at.reshape(*outer, math.prod(output_size))
        positions.append(at)
        values.append(jnp.take_along_axis(flat, at, -1))
    stacked, places = jnp.stack(values), jnp.stack(positions)
    best = jnp.argmax(stacked, 0, keepdims=True)
    shape = (*outer, *output_size)
    return (
        jnp.take_along_axis(stacked, best, 0)[0].reshape(shape),
        jnp.take_along_axis(places, best, 0)[0].reshape(shape),
    )


@lowers(aten.fractional_max_pool2d_backward.default, aten.fractional_max_pool3d_backward.default)
def fractional_max_pool_backward(
    grad: jax.Array, x: jax.Array, kernel_size: Sequence[int], output_size: Sequence[int], indices: jax.Array
) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return scatter_to_planes(wide(grad), indices, x.shape[-len(output_size) :], add=True)
