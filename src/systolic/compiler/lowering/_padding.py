"""Padding by reflection and by repetition of the edge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._table import lowers

aten = torch.ops.aten


def _reflections(x: jax.Array, axis: int, before: int, after: int) -> tuple[jax.Array, jax.Array]:
    size = x.shape[axis]
    left = jnp.flip(lax.slice_in_dim(x, 1, before + 1, axis=axis), axis)
    return left, jnp.flip(lax.slice_in_dim(x, size - 1 - after, size - 1, axis=axis), axis)


def _repetitions(x: jax.Array, axis: int, before: int, after: int) -> tuple[jax.Array, jax.Array]:
    size = x.shape[axis]
    first, last = lax.slice_in_dim(x, 0, 1, axis=axis), lax.slice_in_dim(x, size - 1, size, axis=axis)
    return jnp.repeat(first, before, axis), jnp.repeat(last, after, axis)


def _padded(x: jax.Array, padding: Sequence[int], sides: Callable[..., tuple[jax.Array, jax.Array]]) -> jax.Array:
    """`padding` counts from the last dimension; slices rather than gathers, whose gradient would be a scatter."""
    for place in range(len(padding) // 2):
        before, after = padding[2 * place], padding[2 * place + 1]
        axis = x.ndim - 1 - place
        left, right = sides(x, axis, max(before, 0), max(after, 0))
        kept = lax.slice_in_dim(x, max(-before, 0), x.shape[axis] - max(-after, 0), axis=axis)
        x = jnp.concatenate([left, kept, right], axis)
    return x


def _gradient(
    grad: jax.Array, x: jax.Array, padding: Sequence[int], sides: Callable[..., tuple[jax.Array, jax.Array]]
) -> jax.Array:
    source = jax.ShapeDtypeStruct(x.shape, grad.dtype)
    return jax.linear_transpose(lambda x: _padded(x, padding, sides), source)(grad)[0]


@lowers(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(x: jax.Array, padding: Sequence[int]) -> jax.Array:
    """Mirror `x` at its edges."""
    return _padded(x, padding, _reflections)


@lowers(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(grad: jax.Array, x: jax.Array, padding: Sequence[int]) -> jax.Array:
    """Add the gradients of the mirrored elements to their originals'."""
    return _gradient(grad, x, padding, _reflections)


@lowers(aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default)
def replication_pad(x: jax.Array, padding: Sequence[int]) -> jax.Array:
    """Repeat the edges of `x`."""
    return _padded(x, padding, _repetitions)


@lowers(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(grad: jax.Array, x: jax.Array, padding: Sequence[int]) -> jax.Array:
    """Add the gradients of the repeated elements to their originals'."""
    return _gradient(grad, x, padding, _repetitions)
