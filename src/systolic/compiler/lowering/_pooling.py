"""Max and average pooling with fixed windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from ._channels_last import (
    Value,
    alike,
    array_of,
    held_like,
    in_order_of,
    ordinary,
    spatial_axes,
    takes_channels_last,
)
from ._context import current
from ._pullback import index32, pullback, wide
from ._table import lowers

aten = torch.ops.aten

Window = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]


def per_dimension(values: Sequence[int], count: int) -> tuple[int, ...]:
    """`values` for each of `count` dimensions; PyTorch writes one number for all of them."""
    return tuple(values) * count if len(values) == 1 else tuple(values)


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows PyTorch places along a dimension."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (span + (stride - 1 if ceil_mode else 0)) // stride + 1
    # a last window may not start in the right padding
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def _window(
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    """Kernel, stride, dilation and padding of a `reduce_window` over all dimensions of the array in `x`."""
    outer = x.ndim - len(kernel)
    sizes, sides = [], []
    for size, k, s, p, d in zip(x.shape[outer:], kernel, stride, padding, dilation, strict=True):
        windows = output_size(size, k, s, p, d, ceil_mode)
        if windows == d == 1 and k - p >= size:
            # one window over everything, however far it reaches beyond: transformers' EfficientNet ends with one of 1,280
            # places a side over an image of 3, all of which XLA would go through
            sizes.append(size)
            sides.append((0, 0))
        else:
            sizes.append(k)
            sides.append((p, max(0, (windows - 1) * s + d * (k - 1) + 1 - size - p)))
    ones = (1,) * outer
    return (
        in_order_of(x, (*ones, *sizes)),
        in_order_of(x, (*ones, *stride)),
        in_order_of(x, (*ones, *dilation)),
        in_order_of(x, (*((0, 0),) * outer, *sides)),
    )


def _arguments(
    spatial: int, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel = per_dimension(kernel, spatial)
    return (
        kernel,
        per_dimension(stride, spatial) if stride else kernel,
        per_dimension(padding, spatial),
        per_dimension(dilation, spatial),
    )


def _lowest(dtype: jnp.dtype) -> np.ndarray:
    """The value that every other one of `dtype` is at least as large as."""
    low = -math.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min
    return np.asarray(low, dtype)


def _largest(x: jax.Array, window: Window) -> jax.Array:
    kernel, stride, dilation, padding = window
    return lax.reduce_window(x, _lowest(x.dtype), lax.max, kernel, stride, padding, window_dilation=dilation)


def _largest_index(x: jax.Array, window: Window, axes: Sequence[int]) -> jax.Array:
    """The flat position, in the plane of `axes`, of each window's largest element, the first among equals."""
    kernel, stride, dilation, padding = window
    plane = [size if axis in axes else 1 for axis, size in enumerate(x.shape)]
    positions = jnp.arange(math.prod(plane), dtype=jnp.int32).reshape(plane)

    def larger(a: tuple[jax.Array, jax.Array], b: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        (a_value, a_at), (b_value, b_at) = a, b
        a_nan, b_nan = a_value != a_value, b_value != b_value
        # of two NaNs the last one wins in PyTorch
        tie = jnp.where(a_nan & b_nan, a_at > b_at, (a_value == b_value) & (a_at < b_at))
        first = jnp.where(a_nan | b_nan, a_nan & (~b_nan | tie), (a_value > b_value) | tie)
        return jnp.where(first, a_value, b_value), jnp.where(first, a_at, b_at)

    start = (_lowest(x.dtype), np.asarray(np.iinfo(np.int32).max, np.int32))
    operands = (x, jnp.broadcast_to(positions, x.shape))
    return lax.reduce_window(operands, start, larger, kernel, stride, padding, window_dilation=dilation)[1]


def _max_pool(
    spatial: int,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[Value, Value]:
    window = _window(x, *_arguments(spatial, kernel, stride, padding, dilation), ceil_mode)
    array = array_of(x)
    index = _largest_index(array, window, spatial_axes(x, spatial))
    return held_like(_largest(array, window), x), held_like(index, x)


def scatter_to_planes(values: jax.Array, indices: jax.Array, plane: Sequence[int], add: bool) -> jax.Array:
    """Put `values` [..., windows] at flat positions `indices` of zero planes of shape `plane`."""
    spatial = len(plane)
    outer = values.shape[: values.ndim - spatial]
    size = math.prod(plane)
    rows = math.prod(outer)
    windows = math.prod(values.shape[values.ndim - spatial :])
    at = index32(indices, size).reshape(rows, windows)
    row = jnp.arange(rows, dtype=at.dtype)[:, None]
    target = jnp.zeros((rows, size), values.dtype).at[row, at]
    flat = values.reshape(rows, windows)
    return (target.add(flat) if add else target.set(flat)).reshape(*outer, *plane)


def _max_pool_backward(
    spatial: int,
    grad: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    arguments = _arguments(spatial, kernel, stride, padding, dilation)
    if set(arguments[3]) != {1}:
        spread = scatter_to_planes(wide(ordinary(grad)), ordinary(indices), x.shape[-spatial:], add=True)
        return spread.astype(x.dtype)
    grad, x = alike(grad, x)
    # XLA's select-and-scatter takes the first of equal elements too; the indices, then unused, are never computed
    window = _window(x, *arguments, ceil_mode)
    # float32 copies would be the largest arrays of a ResNet's step; on TPU windows add up in the gradient's own dtype
    widened = (lambda x: x) if current().platform == "tpu" else wide
    spread = pullback(lambda x: _largest(x, window), (widened(array_of(x)),), widened(array_of(grad)))[0]
    return held_like(spread.astype(x.dtype), x)


@lowers(aten.max_pool2d_with_indices.default)
@takes_channels_last
def max_pool2d_with_indices(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """Largest element of each window, and its flat position."""
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


@lowers(aten.max_pool3d_with_indices.default)
def max_pool3d_with_indices(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """Largest element of each window, and its flat position."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode)


@lowers(aten.max_pool2d_with_indices_backward.default)
@takes_channels_last
def max_pool2d_with_indices_backward(
    grad: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    """Each window's gradient goes to its largest element."""
    return _max_pool_backward(2, grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices)


@lowers(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_with_indices_backward(
    grad: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: Value,
) -> Value:
    """Each window's gradient goes to its largest element."""
    return _max_pool_backward(3, grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices)


def _counts(size: int, kernel: int, stride: int, padding: int, windows: int, include_pad: bool) -> np.ndarray:
    """Over how many elements each window along a dimension averages."""
    start = np.arange(windows) * stride - padding
    end = np.minimum(start + kernel, size + padding)
    return end - start if include_pad else np.minimum(end, size) - np.maximum(start, 0)


def _avg_pool(
    spatial: int,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    kernel, stride, padding, dilation = _arguments(spatial, kernel, stride, padding, (1,))
    sizes, strides, _, sides = _window(x, kernel, stride, padding, dilation, ceil_mode)
    values = wide(array_of(x))
    total = lax.reduce_window(values, np.zeros((), values.dtype), lax.add, sizes, strides, sides)
    divisor: np.ndarray | int = divisor_override or 1
    if not divisor_override:
        plane = x.shape[-spatial:]
        for axis, size, k, s, p in zip(spatial_axes(x, spatial), plane, kernel, stride, padding, strict=True):
            counts = _counts(size, k, s, p, total.shape[axis], count_include_pad)
            divisor = divisor * counts.reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    if jnp.issubdtype(x.dtype, jnp.integer):
        return held_like(lax.div(total, jnp.broadcast_to(jnp.asarray(divisor, total.dtype), total.shape)), x)
    return held_like((total / np.asarray(divisor, total.dtype)).astype(x.dtype), x)


def _avg_pool_backward(spatial: int, grad: Value, x: Value, *options: Any) -> Value:
    grad, x = alike(grad, x)

    def forward(array: jax.Array) -> jax.Array:
        return array_of(_avg_pool(spatial, held_like(array, x), *options))

    spread = pullback(forward, (wide(array_of(x)),), wide(array_of(grad)))[0]
    return held_like(spread.astype(x.dtype), x)


@lowers(aten.avg_pool2d.default)
@takes_channels_last
def avg_pool2d(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """Mean of each window."""
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers(aten.avg_pool3d.default)
def avg_pool3d(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    """Mean of each window."""
    return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers(aten.avg_pool1d.default)
def avg_pool1d(
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Value:
    """Mean of each window."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@lowers(aten.avg_pool2d_backward.default)
@takes_channels_last
def avg_pool2d_backward(
    grad: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """Each window's gradient, shared by its elements."""
    return _avg_pool_backward(2, grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(
    grad: Value,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    """Each window's gradient, shared by its elements."""
    return _avg_pool_backward(3, grad, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
