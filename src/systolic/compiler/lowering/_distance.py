"""Distances between the rows of tensors, and vectors scaled by their length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._dtype import announced_shape, normal_axis, promoted
from ._operand import Real
from ._reduction import vector_norm
from ._table import lowers

aten = torch.ops.aten


@lowers(aten._cdist_forward.default)
def _cdist(x: jax.Array, y: jax.Array, p: float, compute_mode: int | None) -> jax.Array:
    x, y = promoted(x, y)
    return vector_norm(x[..., :, None, :] - y[..., None, :, :], p, (-1,))


@lowers(aten._euclidean_dist.default)
def _euclidean_dist(x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = promoted(x, y)
    x_squares, y_squares = jnp.sum(x * x, -1, keepdims=True), jnp.sum(y * y, -1, keepdims=True)
    squares = x_squares + jnp.swapaxes(y_squares, -1, -2) - 2 * jnp.matmul(x, jnp.swapaxes(y, -1, -2))
    return jnp.sqrt(jnp.maximum(squares, 0))


def _distance_gradient(difference: jax.Array, distance: jax.Array, grad: jax.Array, p: float) -> jax.Array:
    """The gradient of a distance for the difference that it measures; zero where that is not defined."""
    size, sign = jnp.abs(difference), jnp.sign(difference)
    if p == 0:
        return jnp.zeros_like(difference)
    if p == 1:
        return grad * sign
    if p == float("inf"):
        return grad * sign * (size == distance)
    slope = difference / distance if p == 2 else sign * size ** (p - 1) / distance ** (p - 1)
    return jnp.where((distance == 0) | ((difference == 0) & (p < 1)), 0, grad * slope)


@lowers(aten._cdist_backward.default)
def _cdist_backward(grad: jax.Array, x: jax.Array, y: jax.Array, p: float, cdist: jax.Array) -> jax.Array:
    grad, x, y, cdist = promoted(grad, x, y, cdist)
    difference = x[..., :, None, :] - y[..., None, :, :]
    slope = jnp.sum(_distance_gradient(difference, cdist[..., None], grad[..., None], p), -2)
    # without elements there is nothing to add up over the dimensions that `y` brought
    return slope if slope.size else jnp.zeros(announced_shape(), slope.dtype)


@lowers(aten._pdist_forward.default)
def _pdist(x: jax.Array, p: float = 2.0) -> jax.Array:
    first, second = np.triu_indices(x.shape[0], 1)
    return vector_norm(x[first] - x[second], p, (-1,))


@lowers(aten._pdist_backward.default)
def _pdist_backward(grad: jax.Array, x: jax.Array, p: float, pdist: jax.Array) -> jax.Array:
    first, second = np.triu_indices(x.shape[0], 1)
    slope = _distance_gradient(x[first] - x[second], pdist[:, None], grad[:, None], p)
    return jnp.zeros_like(x).at[first].add(slope).at[second].add(-slope)


@lowers(aten.renorm.default)
def _renorm(x: jax.Array, p: float, dim: int, maxnorm: Real) -> jax.Array:
    (x,) = promoted(x)
    length = vector_norm(x, p, _other_axes(x, dim), keepdim=True)
    # the small number is PyTorch's own
    return x * jnp.where(length > maxnorm, maxnorm / (length + 1e-7), 1)


@lowers(aten._weight_norm_interface.default)
def _weight_norm(v: jax.Array, g: jax.Array, dim: int = 0) -> tuple[jax.Array, jax.Array]:
    v, g = promoted(v, g)
    length = vector_norm(v, 2, _other_axes(v, dim), keepdim=True)
    return v * (g / length), length


@lowers(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(
    grad: jax.Array, v: jax.Array, g: jax.Array, length: jax.Array, dim: int
) -> tuple[jax.Array, jax.Array]:
    grad, v, g, length = promoted(grad, v, g, length)
    along = jnp.sum(grad * v, _other_axes(v, dim), keepdims=True)
    return g / length * (grad - v * (along / (length * length))), along / length


def _other_axes(x: jax.Array, dim: int) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != normal_axis(dim, x.ndim))


@lowers(aten._trilinear.default)
def _trilinear(
    i1: jax.Array,
    i2: jax.Array,
    i3: jax.Array,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> jax.Array:
    rank = i1.ndim + len(expand1)
    terms: list[Any] = []
    for operand, missing in ((i1, expand1), (i2, expand2), (i3, expand3)):
        terms += [operand, [d for d in range(rank) if d not in missing]]
    return jnp.einsum(*terms, [d for d in range(rank) if d not in sumdim])
