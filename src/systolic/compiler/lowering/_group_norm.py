"""Group normalisation: sums for each channel first, over the image as it lies, and only these are grouped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._batch_norm import Maybe, dimensions_inside, scaled
from ._channels_last import Value, alike, array_of, held_like, takes_channels_last
from ._column_sums import total
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten


class _Places:
    """Channels and their groups in the array of an image.

    Attributes:
        inside: how many dimensions follow that of the channels.
    """

    def __init__(self, x: Value, groups: int) -> None:
        self._groups = groups
        self._shape = array_of(x).shape
        self.inside = dimensions_inside(x)
        self._channel = len(self._shape) - 1 - self.inside

    def sums(self, x: jax.Array, *, computed: bool) -> jax.Array:
        """[batch, channels]: of all positions; `computed` as `total` has it."""
        return total(x, tuple(axis for axis in range(1, x.ndim) if axis != self._channel), computed=computed)

    def means(self, sums: jax.Array) -> jax.Array:
        """[batch, groups] from [batch, channels]: of all that the sums of a group are of."""
        batch, channels = sums.shape
        count = math.prod(self._shape[1:]) // self._groups
        return sums.reshape(batch, self._groups, channels // self._groups).sum(-1) / count

    def spread(self, per_group: jax.Array) -> jax.Array:
        """[batch, groups] for each channel, to broadcast over the array."""
        per_channel = jnp.repeat(per_group, self._shape[self._channel] // self._groups, axis=-1)
        return jnp.expand_dims(per_channel, [axis for axis in range(1, len(self._shape)) if axis != self._channel])


@lowers(aten.native_group_norm.default)
@takes_channels_last
def native_group_norm(
    x: Value, weight: Maybe, bias: Maybe, batch: int, channels: int, positions: int, groups: int, eps: float
) -> tuple[Value, jax.Array, jax.Array]:
    """Normalise each sample's groups of channels; also the mean and one over the deviation, [batch, groups]."""
    places, array = _Places(x, groups), wide(array_of(x))
    mean = places.means(places.sums(array, computed=False))
    centred = array - places.spread(mean)
    rstd = lax.rsqrt(places.means(places.sums(jnp.square(centred), computed=True)) + eps)
    out = scaled(centred * places.spread(rstd), weight, bias, places.inside)
    return held_like(out.astype(x.dtype), x), mean, rstd


@lowers(aten.native_group_norm_backward.default)
@takes_channels_last
def native_group_norm_backward(
    grad: Value,
    x: Value,
    mean: jax.Array,
    rstd: jax.Array,
    weight: Maybe,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Maybe, Maybe]:
    """Gradients of input, weight and bias, each only where `output_mask` asks for it."""
    grad, x = alike(grad, x)
    places, moved = _Places(x, groups), wide(array_of(grad))
    deviation = places.spread(wide(rstd))
    xhat = (wide(array_of(x)) - places.spread(wide(mean))) * deviation
    grads, products = places.sums(moved, computed=True), places.sums(moved * xhat, computed=True)
    grad_x = None
    if output_mask[0]:
        factor = jnp.ones((), moved.dtype) if weight is None else wide(weight)
        centre, slope = places.spread(places.means(grads * factor)), places.spread(places.means(products * factor))
        grad_xhat = scaled(moved, weight, None, places.inside)
        grad_x = held_like((grad_xhat - centre - xhat * slope) * deviation, x)
    return grad_x, products.sum(0) if output_mask[1] else None, grads.sum(0) if output_mask[2] else None
