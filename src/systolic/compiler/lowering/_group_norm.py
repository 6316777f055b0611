"""Group normalisation: sums for each channel first, over the image as it lies, and only these are grouped."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._channels_last import ChannelsLast, Value, alike, array_of, held_like, takes_channels_last
from ._column_sums import total
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten

Maybe = jax.Array | None


class _Places:
    """Channels and their groups in the array of an image.

    Attributes:
        channel: its dimension.
    """

    def __init__(self, x: Value, groups: int) -> None:
        self._groups = groups
        self._shape = array_of(x).shape
        self.channel = len(self._shape) - 1 if isinstance(x, ChannelsLast) else 1

    def sums(self, x: jax.Array, *, computed: bool) -> jax.Array:
        """[batch, channels]: of all positions; `computed` as `total` has it."""
        return total(x, tuple(axis for axis in range(1, x.ndim) if axis != self.channel), computed=computed)

    def means(self, sums: jax.Array) -> jax.Array:
        """[batch, groups] from [batch, channels]: of all that the sums of a group are of."""
        batch, channels = sums.shape
        count = math.prod(self._shape) // (batch * self._groups)
        return sums.reshape(batch, self._groups, channels // self._groups).sum(-1) / count

    def spread(self, per_group: jax.Array) -> jax.Array:
        """[batch, groups] for each channel, to broadcast over the array."""
        return self.per_channel(jnp.repeat(per_group, self._shape[self.channel] // self._groups, axis=-1))

    def per_channel(self, values: jax.Array) -> jax.Array:
        """[batch, channels] or [channels], to broadcast over the array."""
        shape = [1] * len(self._shape)
        shape[0] = values.shape[0] if values.ndim == 2 else 1
        shape[self.channel] = -1
        return values.reshape(shape)


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
    out = centred * places.spread(rstd)
    if weight is not None:
        out = out * places.per_channel(wide(weight))
    if bias is not None:
        out = out + places.per_channel(wide(bias))
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
        scaled = moved if weight is None else moved * places.per_channel(factor)
        grad_x = held_like((scaled - centre - xhat * slope) * deviation, x)
    return grad_x, products.sum(0) if output_mask[1] else None, grads.sum(0) if output_mask[2] else None
