"""Fourier transforms, a dimension at a time: XLA's own transform stops at three."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ._table import lowers

aten = torch.ops.aten

_BY_ROOT_N, _BY_N = 1, 2


def _scaled(x: jax.Array, sizes: Sequence[int], normalization: int) -> jax.Array:
    """PyTorch's transforms come unscaled with a mode that says how to scale them."""
    if normalization not in (_BY_ROOT_N, _BY_N):
        return x
    count = math.prod(sizes)
    factor = 1 / math.sqrt(count) if normalization == _BY_ROOT_N else 1 / count
    return x * jnp.asarray(factor, jnp.finfo(x.dtype).dtype)


def _along(x: jax.Array, dims: Sequence[int], forward: bool) -> jax.Array:
    for dim in dims:
        x = jnp.fft.fft(x, axis=dim) if forward else jnp.fft.ifft(x, axis=dim, norm="forward")
    return x


@lowers(aten._fft_c2c.default)
def fft_c2c(x: jax.Array, dim: Sequence[int], normalization: int, forward: bool) -> jax.Array:
    """Complex to complex."""
    return _scaled(_along(x, dim, forward), [x.shape[d] for d in dim], normalization)


@lowers(aten._fft_r2c.default)
def fft_r2c(x: jax.Array, dim: Sequence[int], normalization: int, onesided: bool) -> jax.Array:
    """Real to complex; one-sided drops the half of the last dimension that mirrors the other."""
    first = jnp.fft.rfft(x, axis=dim[-1]) if onesided else jnp.fft.fft(x, axis=dim[-1])
    return _scaled(_along(first, dim[:-1], True), [x.shape[d] for d in dim], normalization)


@lowers(aten._fft_c2r.default)
def fft_c2r(x: jax.Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> jax.Array:
    """One-sided complex to real."""
    out = jnp.fft.irfft(_along(x, dim[:-1], False), n=last_dim_size, axis=dim[-1], norm="forward")
    return _scaled(out, [out.shape[d] for d in dim], normalization)
