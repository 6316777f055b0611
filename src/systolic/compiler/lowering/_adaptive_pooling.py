"""Pooling to a given output size."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._channels_last import Value, alike, array_of, held_like, spatial_axes, takes_channels_last
from ._pooling import scatter_to_planes
from ._pullback import pullback, wide
from ._table import lowers

aten = torch.ops.aten


def _windows(size: int, count: int) -> list[tuple[int, int]]:
    """Start and end of each of `count` windows over `size` elements, as PyTorch places them."""
    return [(i * size // count, -((i + 1) * size // -count)) for i in range(count)]


def _average(x: jax.Array, axes: Sequence[int], sizes: Sequence[int]) -> jax.Array:
    values = wide(x)
    for axis, count in zip(axes, sizes, strict=True):
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
@takes_channels_last
def adaptive_avg_pool(x: Value, output_size: Sequence[int]) -> Value:
    """Mean of each window."""
    return held_like(_average(array_of(x), spatial_axes(x, len(output_size)), output_size), x)


def _average_backward(spatial: int, grad: Value, x: Value) -> Value:
    grad, x = alike(grad, x)
    axes, sizes = spatial_axes(x, spatial), grad.shape[-spatial:]
    source = wide(array_of(x))
    spread = pullback(lambda x: _average(x, axes, sizes), (source,), wide(array_of(grad)))[0]
    return held_like(spread.astype(x.dtype), x)


@lowers(aten._adaptive_avg_pool2d_backward.default)
@takes_channels_last
def adaptive_avg_pool2d_backward(grad: Value, x: Value) -> Value:
    """Each window's gradient, shared by its elements."""
    return _average_backward(2, grad, x)


@lowers(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(grad: Value, x: Value) -> Value:
    """Each window's gradient, shared by its elements."""
    return _average_backward(3, grad, x)


@lowers(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default)
@takes_channels_last
def adaptive_max_pool(x: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """Largest element of each window, and its flat position.

    Dimensions are reduced from the last to the first, which keeps the first of equal elements in memory order.
    """
    values = array_of(x)
    positions = jnp.zeros(values.shape, jnp.int32)
    stride = 1
    for axis, count in reversed(list(zip(spatial_axes(x, len(output_size)), output_size, strict=True))):
        size = values.shape[axis]
        best, at = [], []
        for start, end in _windows(size, count):
            part = jax.lax.slice_in_dim(values, start, end, axis=axis)
            inner = jax.lax.slice_in_dim(positions, start, end, axis=axis)
            chosen = jnp.argmax(part, axis, keepdims=True).astype(jnp.int32)
            best.append(jnp.take_along_axis(part, chosen, axis))
            at.append(jnp.take_along_axis(inner, chosen, axis) + (chosen + start) * stride)
        values, positions = jnp.concatenate(best, axis), jnp.concatenate(at, axis)
        stride *= size
    return held_like(values, x), held_like(positions, x)


@lowers(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(grad: jax.Array, x: jax.Array, indices: jax.Array) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return scatter_to_planes(wide(grad), indices, x.shape[-2:], add=True)


@lowers(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(grad: jax.Array, x: jax.Array, indices: jax.Array) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return scatter_to_planes(wide(grad), indices, x.shape[-3:], add=True)
