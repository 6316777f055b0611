"""Max and average pooling with fixed windows."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

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
    shape: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> Window:
    """Kernel, stride, dilation and padding of a `reduce_window` over all dimensions of `shape`."""
    outer = len(shape) - len(kernel)
    sides = []
    for size, k, s, p, d in zip(shape[outer:], kernel, stride, padding, dilation, strict=True):
        windows = output_size(size, k, s, p, d, ceil_mode)
        sides.append((p, max(0, (windows - 1) * s + d * (k - 1) + 1 - size - p)))
    ones = (1,) * outer
    return (*ones, *kernel), (*ones, *stride), (*ones, *dilation), (*((0, 0),) * outer, *sides)


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


def _largest_index(x: jax.Array, window: Window, spatial: int) -> jax.Array:
    """The flat position of each window's largest element, the first among equals."""
    kernel, stride, dilation, padding = window
    plane = x.shape[-spatial:]
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
    x: jax.Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[jax.Array, jax.Array]:
    window = _window(x.shape, *_arguments(spatial, kernel, stride, padding, dilation), ceil_mode)
    return _largest(x, window), _largest_index(x, window, spatial)


def scatter_to_planes(values: jax.Array, indices: jax.Array, plane: Sequence[int], add: bool) -> jax.Array:
    """Put `values` [..., windows] at flat positions `indices` of zero planes of shape `plane`."""
    spatial = len(plane)
    outer = values.shape[: values.ndim - spatial]
    size = math.prod(plane)
    rows = math.prod(outer)
    at = index32(indices, size).reshape(rows, -1)
    row = jnp.arange(rows, dtype=at.dtype)[:, None]
    target = jnp.zeros((rows, size), values.dtype).at[row, at]
    flat = values.reshape(rows, -1)
    return (target.add(flat) if add else target.set(flat)).reshape(*outer, *plane)


def _max_pool_backward(
    spatial: int,
    grad: jax.Array,
    x: jax.Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: jax.Array,
) -> jax.Array:
    arguments = _arguments(spatial, kernel, stride, padding, dilation)
    if set(arguments[3]) != {1}:
        return scatter_to_planes(wide(grad), indices, x.shape[-spatial:], add=True).astype(x.dtype)
    # XLA's select-and-scatter takes the first of equal elements too; the indices, then unused, are never computed
    window = _window(x.shape, *arguments, ceil_mode)
    return pullback(lambda x: _largest(x, window), (wide(x),), wide(grad))[0].astype(x.dtype)


@lowers(aten.max_pool2d_with_indices.default)
def max_pool2d_with_indices(
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Largest element of each window, and its flat position."""
    return _max_pool(2, x, kernel_size, stride, padding, dilation, ceil_mode)


@lowers(aten.max_pool3d_with_indices.default)
def max_pool3d_with_indices(
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Largest element of each window, and its flat position."""
    return _max_pool(3, x, kernel_size, stride, padding, dilation, ceil_mode)


@lowers(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_with_indices_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: jax.Array,
) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return _max_pool_backward(2, grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices)


@lowers(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_with_indices_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: jax.Array,
) -> jax.Array:
    """Each window's gradient goes to its largest element."""
    return _max_pool_backward(3, grad, x, kernel_size, stride, padding, dilation, ceil_mode, indices)


def _counts(size: int, kernel: int, stride: int, padding: int, windows: int, include_pad: bool) -> np.ndarray:
    """Over how many elements each window along a dimension averages."""
    start = np.arange(windows) * stride - padding
    end = np.minimum(start + kernel, size + padding)
    return end - start if include_pad else np.minimum(end, size) - np.maximum(start, 0)


def _avg_pool(
    spatial: int,
    x: jax.Array,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> jax.Array:
    kernel, stride, padding, dilation = _arguments(spatial, kernel, stride, padding, (1,))
    sizes, strides, _, sides = _window(x.shape, kernel, stride, padding, dilation, ceil_mode)
    values = wide(x)
    total = lax.reduce_window(values, np.zeros((), values.dtype), lax.add, sizes, strides, sides)
    divisor: np.ndarray | int = divisor_override or 1
    if not divisor_override:
        for axis in range(spatial):
            plane = x.shape[-spatial:]
            windows = total.shape[-spatial + axis]
            counts = _counts(plane[axis], kernel[axis], stride[axis], padding[axis], windows, count_include_pad)
            divisor = divisor * counts.reshape((-1,) + (1,) * (spatial - 1 - axis))
    if jnp.issubdtype(x.dtype, jnp.integer):
        return lax.div(total, jnp.broadcast_to(jnp.asarray(divisor, total.dtype), total.shape))
    return (total / np.asarray(divisor, total.dtype)).astype(x.dtype)


@lowers(aten.avg_pool2d.default)
def avg_pool2d(
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """Mean of each window."""
    return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers(aten.avg_pool3d.default)
def avg_pool3d(
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """Mean of each window."""
    return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@lowers(aten.avg_pool1d.default)
def avg_pool1d(
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> jax.Array:
    """Mean of each window."""
    return _avg_pool(1, x, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


@lowers(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> jax.Array:
    """Each window's gradient, shared by its elements."""

    def forward(x: jax.Array) -> jax.Array:
        return _avg_pool(2, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return pullback(forward, (wide(x),), wide(grad))[0].astype(x.dtype)


@lowers(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(
    grad: jax.Array,
    x: jax.Array,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> jax.Array:
    """Each window's gradient, shared by its elements."""

    def forward(x: jax.Array) -> jax.Array:
        return _avg_pool(3, x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    return pullback(forward, (wide(x),), wide(grad))[0].astype(x.dtype)
