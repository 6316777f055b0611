"""Resizing of images and other grids, one dimension at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._channels_last import Value, array_of, held_like, in_order_of, spatial_axes, takes_channels_last
from ._context import current
from ._pullback import wide
from ._resampling import Real, Taps, antialiased, cubic, linear, nearest, nearest_exact
from ._table import lowers

aten = torch.ops.aten

Kernel = Callable[[int, int, bool, float | None, Real], Taps]


def _resample(x: jax.Array, taps: Taps, axis: int) -> jax.Array:
    """Each new element along `axis` as a weighted sum of old ones."""
    positions, weights = taps
    shape = [1] * x.ndim
    shape[axis] = -1
    parts = [
        _taken(x, position, axis) if weight is None else _taken(x, position, axis) * jnp.asarray(weight, x.dtype).reshape(shape)
        for position, weight in zip(positions, weights, strict=True)
    ]
    return sum(parts[1:], parts[0])


def _taken(x: jax.Array, positions: np.ndarray, axis: int) -> jax.Array:
    """Elements at constant positions; all of them, equally often, without a gather, whose gradient is a scatter."""
    size = x.shape[axis]
    times = len(positions) // max(size, 1)
    if np.array_equal(positions, np.repeat(np.arange(size), times)):
        return jnp.repeat(x, times, axis=axis) if times != 1 else x
    return jnp.take(x, positions, axis=axis)


def _resize(kernel: Kernel, x: Value, output_size: Sequence[int], align: bool, scales: Sequence[float | None]) -> Value:
    values = wide(array_of(x))
    real = np.float64 if values.dtype == jnp.float64 else np.float32
    for axis, size, scale in zip(spatial_axes(x, x.ndim - 2), output_size, scales, strict=True):
        values = _resample(values, kernel(values.shape[axis], size, align, scale, real), axis)
    return held_like(values.astype(x.dtype), x)


def _resize_backward(
    kernel: Kernel,
    grad: Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    align: bool,
    scales: Sequence[float | None],
) -> Value:
    values = wide(array_of(grad))

    def forward(array: jax.Array) -> jax.Array:
        return array_of(_resize(kernel, held_like(array, grad), output_size, align, scales))

    source = jax.ShapeDtypeStruct(in_order_of(grad, input_size), values.dtype)
    return held_like(jax.linear_transpose(forward, source)(values)[0].astype(grad.dtype), grad)


def _scales(given: Sequence[float | None], count: int) -> list[float | None]:
    """One scale a dimension; PyTorch may leave them out."""
    return [*given, *[None] * (count - len(given))]


def _lower_aligned(kernel: Kernel, name: str, dims: int) -> None:
    """Lower an interpolation that has an `align_corners` argument, its backward and its form with factors."""

    def forward(x: Value, output_size: Sequence[int], align_corners: bool, *scales: Any, **named: Any) -> Value:
        return _resize(kernel, x, output_size, align_corners, _scales([*scales, *named.values()], dims))

    def backward(
        grad: Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: Any,
        **named: Any,
    ) -> Value:
        given = _scales([*scales, *named.values()], dims)
        return _resize_backward(kernel, grad, output_size, input_size, align_corners, given)

    def vec(x: Value, output_size: Sequence[int] | None, align_corners: bool, scale_factors: Sequence[float] | None) -> Value:
        return _resize(kernel, x, current().output.shape[2:], align_corners, _scales(scale_factors or (), dims))

    _register(name, forward, backward, vec)


def _lower_nearest(kernel: Kernel, name: str, dims: int) -> None:
    """Lower an interpolation without `align_corners`, its backward and its form with factors."""

    def forward(x: Value, output_size: Sequence[int], *scales: Any, **named: Any) -> Value:
        return _resize(kernel, x, output_size, False, _scales([*scales, *named.values()], dims))

    def backward(grad: Value, output_size: Sequence[int], input_size: Sequence[int], *scales: Any, **named: Any) -> Value:
        given = _scales([*scales, *named.values()], dims)
        return _resize_backward(kernel, grad, output_size, input_size, False, given)

    def vec(x: Value, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None) -> Value:
        return _resize(kernel, x, current().output.shape[2:], False, _scales(scale_factors or (), dims))

    _register(name, forward, backward, vec)


def _register(name: str, forward: Callable[..., Any], backward: Callable[..., Any], vec: Callable[..., Any]) -> None:
    packet = getattr(aten, name)
    lowers(packet.default)(takes_channels_last(forward))
    lowers(packet.vec)(takes_channels_last(vec))
    lowers(getattr(aten, f"{name}_backward").default)(takes_channels_last(backward))


for _dims in (1, 2, 3):
    _lower_nearest(nearest, f"upsample_nearest{_dims}d", _dims)
    _lower_nearest(nearest_exact, f"_upsample_nearest_exact{_dims}d", _dims)
_lower_aligned(linear, "upsample_linear1d", 1)
_lower_aligned(linear, "upsample_bilinear2d", 2)
_lower_aligned(linear, "upsample_trilinear3d", 3)
_lower_aligned(cubic, "upsample_bicubic2d", 2)
_lower_aligned(antialiased("linear"), "_upsample_bilinear2d_aa", 2)
_lower_aligned(antialiased("cubic"), "_upsample_bicubic2d_aa", 2)


def _unfolded(
    x: jax.Array, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> jax.Array:
    batch = x.shape[:-3]
    outer = [(0, 0)] * (x.ndim - 2)
    padded = jnp.pad(x, [*outer, *((p, p) for p in padding)])
    counts = [
        (size - d * (k - 1) - 1) // s + 1 for size, k, d, s in zip(padded.shape[-2:], kernel, dilation, stride, strict=True)
    ]
    patches = []
    for place in np.ndindex(*kernel):
        window = [
            slice(i * d, i * d + s * (count - 1) + 1, s) for i, d, s, count in zip(place, dilation, stride, counts, strict=True)
        ]
        patches.append(padded[(..., *window)])
    return jnp.stack(patches, -3).reshape(*batch, x.shape[-3] * len(patches), counts[0] * counts[1])


@lowers(aten.im2col.default)
def im2col(
    x: jax.Array, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> jax.Array:
    """The elements under each place of a sliding window, a column each."""
    return _unfolded(x, kernel_size, dilation, padding, stride)


@lowers(aten.col2im.default)
def col2im(
    columns: jax.Array,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> jax.Array:
    """The adjoint of `im2col`: overlapping elements add up."""
    channels = columns.shape[-2] // (kernel_size[0] * kernel_size[1])
    image = jax.ShapeDtypeStruct((*columns.shape[:-2], channels, *output_size), columns.dtype)
    return jax.linear_transpose(lambda x: _unfolded(x, kernel_size, dilation, padding, stride), image)(columns)[0]
