"""Sampling of images at given places."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._pullback import pullback, wide
from ._table import lowers

aten = torch.ops.aten

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _clipped(places: jax.Array, size: int) -> jax.Array:
    """Places moved into the image; those at the border have no gradient, as in PyTorch."""
    return jnp.where(places <= 0, 0, jnp.where(places >= size - 1, size - 1, places)).astype(places.dtype)


def _reflected(places: jax.Array, size: int, align: bool) -> jax.Array:
    low, span = (0.0, size - 1.0) if align else (-0.5, float(size))
    if span <= 0:
        return jnp.zeros_like(places)
    distance = jnp.abs(places - low)
    turns = jnp.floor(distance / span)
    inside = distance - turns * span
    return jnp.where(turns % 2 == 0, inside + low, span - inside + low)


def _in_image(places: jax.Array, size: int, padding: int, align: bool) -> jax.Array:
    """Places after the padding mode has brought them into the image."""
    if padding == _ZEROS:
        return places
    if padding == _REFLECTION:
        places = _reflected(places, size, align)
    return _clipped(places, size)


def _unnormalised(grid: jax.Array, size: int, align: bool) -> jax.Array:
    return (grid + 1) / 2 * (size - 1) if align else ((grid + 1) * size - 1) / 2


def _read(x: jax.Array, places: Sequence[jax.Array]) -> jax.Array:
    """`x` [N, C, ...] at integer places [N, ...] of each dimension; zero outside."""
    sizes = x.shape[2:]
    inside = jnp.ones(places[0].shape, jnp.bool_)
    for place, size in zip(places, sizes, strict=True):
        inside &= (place >= 0) & (place < size)
    # compared as floats first: a far-away place does not fit an integer
    at = [jnp.where(inside, place, 0).astype(jnp.int32) for place in places]
    sample = jnp.arange(x.shape[0], dtype=jnp.int32).reshape(-1, *(1,) * (places[0].ndim - 1))
    values = jnp.moveaxis(x, 1, -1)[(sample, *at)]
    return jnp.moveaxis(jnp.where(inside[..., None], values, 0), -1, 1)


def _linear(x: jax.Array, places: Sequence[jax.Array]) -> jax.Array:
    """Weighted mean of the elements around each place."""
    before = [jnp.floor(place) for place in places]
    total = jnp.zeros((), x.dtype)
    for corner in itertools.product((0, 1), repeat=len(places)):
        weight = jnp.ones((), x.dtype)
        for side, place, low in zip(corner, places, before, strict=True):
            weight = weight * (place - low if side else low + 1 - place)
        total = total + _read(x, [low + side for low, side in zip(before, corner, strict=True)]) * weight[:, None]
    return total


def _cubic_weights(share: jax.Array) -> list[jax.Array]:
    a = -0.75

    def near(d: jax.Array) -> jax.Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: jax.Array) -> jax.Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(share + 1), near(share), near(1 - share), far(2 - share)]


def _cubic(x: jax.Array, places: Sequence[jax.Array], padding: int, align: bool) -> jax.Array:
    """Weighted mean of the four by four elements around each place; the padding mode applies to each of them."""
    before = [jnp.floor(place) for place in places]
    weights = [_cubic_weights(place - low) for place, low in zip(places, before, strict=True)]
    total = jnp.zeros((), x.dtype)
    for corner in itertools.product(range(4), repeat=len(places)):
        at = [
            _in_image(low + offset - 1, size, padding, align)
            for low, offset, size in zip(before, corner, x.shape[2:], strict=True)
        ]
        weight = jnp.ones((), x.dtype)
        for offset, options in zip(corner, weights, strict=True):
            weight = weight * options[offset]
        total = total + _read(x, at) * weight[:, None]
    return total


def _sample(x: jax.Array, grid: jax.Array, mode: int, padding: int, align: bool) -> jax.Array:
    sizes = x.shape[2:]
    # a grid's last dimension counts from the last dimension of the image
    places = [_unnormalised(grid[..., len(sizes) - 1 - i], size, align) for i, size in enumerate(sizes)]
    if mode == _CUBIC:
        return _cubic(x, places, padding, align)
    places = [_in_image(place, size, padding, align) for place, size in zip(places, sizes, strict=True)]
    if mode == _NEAREST:
        return _read(x, [jnp.round(place) for place in places])
    return _linear(x, places)


@lowers(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(x: jax.Array, grid: jax.Array, interpolation_mode: int, padding_mode: int, align_corners: bool) -> jax.Array:
    """`x` at the places of `grid`, whose coordinates run from -1 to 1 over the image."""
    return _sample(wide(x), wide(grid), interpolation_mode, padding_mode, align_corners).astype(x.dtype)


@lowers(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad: jax.Array,
    x: jax.Array,
    grid: jax.Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[jax.Array | None, jax.Array]:
    """Gradients of image and grid; that of the grid is always wanted."""

    def forward(x: jax.Array, grid: jax.Array) -> jax.Array:
        return _sample(x, grid, interpolation_mode, padding_mode, align_corners)

    grad_x, grad_grid = pullback(forward, (wide(x), wide(grid)), wide(grad))
    return grad_x if output_mask[0] else None, grad_grid


def _base_grid(sizes: Sequence[int], align: bool, dtype: jnp.dtype) -> jax.Array:
    """Coordinates of every pixel, last dimension first, and a one: [..., dims + 1]."""
    axes = []
    for size in sizes:
        line = jnp.linspace(-1, 1, size, dtype=dtype) if size > 1 else jnp.zeros(size, dtype)
        axes.append(line if align else line * ((size - 1) / size))
    mesh = jnp.meshgrid(*axes, indexing="ij")
    return jnp.stack([*reversed(mesh), jnp.ones(tuple(sizes), dtype)], -1)


@lowers(aten.affine_grid_generator.default)
def affine_grid_generator(theta: jax.Array, size: Sequence[int], align_corners: bool) -> jax.Array:
    """Source position of each pixel of an output under the affine maps `theta`."""
    base = _base_grid(size[2:], align_corners, wide(theta).dtype)
    return jnp.einsum("...j,nij->n...i", base, wide(theta), precision="highest")


@lowers(aten.affine_grid_generator_backward.default)
def affine_grid_generator_backward(grad: jax.Array, size: Sequence[int], align_corners: bool) -> jax.Array:
    """Gradient of the affine maps."""
    base = _base_grid(size[2:], align_corners, wide(grad).dtype)
    return jnp.einsum("...j,n...i->nij", base, wide(grad), precision="highest")
