"""Tensors with their elements moved around, repeated, padded or partly cleared."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._dtype import announced_dtype, announced_shape, as_array, normal_axes, normal_axis
from ._operand import Operand
from ._table import lowers

aten = torch.ops.aten


@lowers(aten.flip.default)
def _flip(x: jax.Array, dims: Sequence[int]) -> jax.Array:
    return jnp.flip(x, normal_axes(dims, x.ndim)) if dims else x


@lowers(aten.roll.default)
def _roll(x: jax.Array, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> jax.Array:
    amounts = [shifts] if isinstance(shifts, int) else list(shifts)
    axes = [dims] if isinstance(dims, int) else list(dims)
    if not axes:
        return jnp.roll(x.reshape(-1), amounts[0]).reshape(x.shape)
    return jnp.roll(x, amounts, axes) if x.ndim else x


@lowers(aten.rot90.default)
def _rot90(x: jax.Array, k: int = 1, dims: Sequence[int] = (0, 1)) -> jax.Array:
    first, second = dims
    return jnp.rot90(x, k, (first, second))


@lowers(aten.repeat.default, aten.tile.default)
def _repeat(x: jax.Array, repeats: Sequence[int]) -> jax.Array:
    return jnp.tile(x, tuple(repeats))


@lowers(aten.constant_pad_nd.default)
def _constant_pad(x: jax.Array, pad: Sequence[int], value: Operand = 0) -> jax.Array:
    padding = [(0, 0, 0)] * x.ndim
    for i in range(len(pad) // 2):
        padding[x.ndim - 1 - i] = (pad[2 * i], pad[2 * i + 1], 0)
    return jax.lax.pad(x, as_array(value, x.dtype), padding)


@lowers(aten.tril.default)
def _tril(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.tril(x, diagonal)


@lowers(aten.triu.default)
def _triu(x: jax.Array, diagonal: int = 0) -> jax.Array:
    return jnp.triu(x, diagonal)


@lowers(aten.diag_embed.default)
def _diag_embed(x: jax.Array, offset: int = 0, dim1: int = -2, dim2: int = -1) -> jax.Array:
    size = x.shape[-1] + abs(offset)
    row = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
    column = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
    # row i of the matrix holds element i (or i + offset, below the diagonal)
    spread = jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(max(-offset, 0), max(offset, 0))])
    matrix = jnp.where(column - row == offset, spread[..., :, None], jnp.zeros((), x.dtype))
    return jnp.moveaxis(matrix, (-2, -1), (dim1, dim2))


@lowers(aten.pixel_shuffle.default)
def _pixel_shuffle(x: jax.Array, upscale_factor: int) -> jax.Array:
    *batch, channels, height, width = x.shape
    f = upscale_factor
    split = x.reshape(math.prod(batch), channels // (f * f), f, f, height, width)
    return split.transpose(0, 1, 4, 2, 5, 3).reshape(*batch, channels // (f * f), height * f, width * f)


@lowers(aten.pixel_unshuffle.default)
def _pixel_unshuffle(x: jax.Array, downscale_factor: int) -> jax.Array:
    *batch, channels, height, width = x.shape
    f = downscale_factor
    split = x.reshape(math.prod(batch), channels, height // f, f, width // f, f)
    return split.transpose(0, 1, 3, 5, 2, 4).reshape(*batch, channels * f * f, height // f, width // f)


@lowers(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def _channel_shuffle(x: jax.Array, groups: int) -> jax.Array:
    batch, channels, *rest = x.shape
    return x.reshape(batch, groups, channels // groups, *rest).swapaxes(1, 2).reshape(x.shape)


@lowers(aten._chunk_cat.default)
def _chunk_cat(tensors: Sequence[jax.Array], dim: int, num_chunks: int) -> jax.Array:
    rows = []
    for tensor in tensors:
        axis = normal_axis(dim, tensor.ndim)
        length = math.ceil(tensor.shape[axis] / num_chunks) * num_chunks
        padding = [(0, length - n if a == axis else 0) for a, n in enumerate(tensor.shape)]
        rows.append(jnp.pad(tensor, padding).reshape(*tensor.shape[:axis], num_chunks, -1))
    return jnp.concatenate(rows, axis=-1).reshape(announced_shape())


@lowers(aten.repeat_interleave.self_int)
def _repeat_interleave(x: jax.Array, repeats: int, dim: int | None = None, output_size: int | None = None) -> jax.Array:
    return jnp.repeat(x, repeats, axis=dim)


@lowers(aten.repeat_interleave.Tensor)
def _repeated_positions(repeats: jax.Array, *, output_size: int | None = None) -> jax.Array:
    assert output_size is not None, "repeat_interleave without output_size passed capture"
    numbers = jnp.arange(repeats.shape[0], dtype=repeats.dtype)
    return jnp.repeat(numbers, repeats, total_repeat_length=output_size)


@lowers(aten.block_diag.default)
def _block_diag(tensors: Sequence[jax.Array]) -> jax.Array:
    return jax.scipy.linalg.block_diag(*(jnp.atleast_2d(t).astype(announced_dtype()) for t in tensors))
