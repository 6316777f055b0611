"""Pooling to a given output size."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._pooling import scatter_to_planes
from ._pullback import pullback, wide
from ._table import lowers

aten = torch.ops.aten


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of each of `count` windows over `size` elements, as PyTorch places them."""
    return [(i * size // count, -((i + 1) * size // -count)) for i in range(count)]


def _average(x: jax.Array, sizes: Sequence[int]) -> jax.Array:
    values = wide(x)
    for axis, count in zip(range(x.ndim - len(sizes), x.ndim), sizes, strict=True):
        size = x.shape[axis]
        if size == count:
            continue
        if count and size % count == 0:
            shape = (*values.shape[:axis], count, size // count, *values.shape[axis + 1 :])
            values = values.reshape(shape).mean(axis + 1)
            continue
        parts = [
            jax.lax.slice_in_dim(values, start, end, axis=axis).mean(axis, keepdims=True)
            for start, end in _windows(size, count)
        ]
        values = jnp.concatenate(parts, axis) if parts else jax.lax.slice_in_dim(values, 0, 0, axis=axis)
    return values.astype(x.dtype)


@lowers(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool1d.default)
def adaptive_avg_pool(x: jax.Array, output_size: Sequence[int]) -> jax.Array:
    """Mean of each window."""
    return _average(x, output_size)


@lowers(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    """Each window's gradient, shared by its elements."""
    return pullback(lambda x: _average(x, grad.shape[-2:]), (wide(x),), wide(grad))[0].astype(x.dtype)


@lowers(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    """Each window's gradient, shared by its elements."""
    return pullback(lambda x: _average(x, grad.shape[-3:]), (wide(x),), wide(grad))[0].astype(x.dtype)


@lowers(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
def adaptive_max_pool(x: jax.Array, output_size: Sequence[int]) -> tuple[jax.Array, jax.Array]:
    """Largest element of each window, and its flat position.

    Dimensions are reduced from the last to the first, which keeps the first of equal elements in memory order.
    """
    spatial = len(output_size)
    values = x
    positions = jnp.zeros(x.shape, jnp.int32)
    stride = 1
    for axis in reversed(range(x.ndim - spatial, x.ndim)):
        best, at = [], []
        for start, end in _windows(x.shape[axis], output_size[axis - x.ndim]):
            part = jax.lax.slice_in_dim(values, start, end, axis=axis)
            inner = jax.lax.slice_in_dim(positions, start, end, axis=axis)
            chosen = jnp.argmax(part, axis, keepdims=True).astype(jnp.int32)
            best.append(jnp.take_along_axis(part, chosen, axis))
            at.append(jnp.take_along_axis(inner, chosen, axis) + (chosen + start) * stride)
        values, positions = jnp.concatenate(best, axis), jnp.concatenate(at, axis)
        stride *= x.shape[axis]
    return values, positions


@lowers(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(grad: jax.Array, x: jax.Array, indices: jax.Array) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return scatter_to_planes(wide(grad), indices, x.shape[-2:], add=True)


@lowers(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(grad: jax.Array, x: jax.Array, indices: jax.Array) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return scatter_to_planes(wide(grad), indices, x.shape[-3:], add=True)
