"""Layer and RMS normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._column_sums import total
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten


def _normalised(x: jax.Array, axes: Sequence[int], eps: float) -> tuple[jax.Array, jax.Array, jax.Array]:
    """`x` with mean 0 and variance 1 over `axes`, the mean, and one over the deviation."""
    mean = x.mean(axes, keepdims=True)
    centred = x - mean
    rstd = lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    return centred * rstd, mean, rstd


def _grad_normalised(grad: jax.Array, xhat: jax.Array, rstd: jax.Array, axes: Sequence[int]) -> jax.Array:
    """The gradient of the input from `grad`, that of the normalised input."""
    mean_grad = grad.mean(axes, keepdims=True)
    mean_product = (grad * xhat).mean(axes, keepdims=True)
    return (grad - mean_grad - xhat * mean_product) * rstd


@lowers(aten.native_layer_norm.default)
def native_layer_norm(
    x: jax.Array, normalized_shape: Sequence[int], weight: jax.Array | None, bias: jax.Array | None, eps: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Normalise over the trailing dimensions; also the mean and one over the deviation."""
    axes = range(x.ndim - len(normalized_shape), x.ndim)
    out, mean, rstd = _normalised(wide(x), tuple(axes), eps)
    if weight is not None:
        out = out * wide(weight)
    if bias is not None:
        out = out + wide(bias)
    return out.astype(x.dtype), mean, rstd


@lowers(aten.native_layer_norm_backward.default)
def native_layer_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    normalized_shape: Sequence[int],
    mean: jax.Array,
    rstd: jax.Array,
    weight: jax.Array | None,
    bias: jax.Array | None,
    output_mask: Sequence[bool],
) -> tuple[jax.Array | None, jax.Array | None, jax.Array | None]:
    """Gradients of input, weight and bias, each only where `output_mask` asks for it."""
    split = x.ndim - len(normalized_shape)
    inner, outer = tuple(range(split, x.ndim)), tuple(range(split))
    grad, rstd = wide(grad), wide(rstd)
    xhat = (wide(x) - wide(mean)) * rstd
    grad_xhat = grad if weight is None else grad * wide(weight)
    return (
        _grad_normalised(grad_xhat, xhat, rstd, inner) if output_mask[0] else None,
        total(grad * xhat, outer) if output_mask[1] and weight is not None else None,
        total(grad, outer) if output_mask[2] and bias is not None else None,
    )


@lowers(aten._fused_rms_norm.default)
def fused_rms_norm(
    x: jax.Array, normalized_shape: Sequence[int], weight: jax.Array | None, eps: float | None
) -> tuple[jax.Array, jax.Array]:
    """Divide by the root of the mean square over the trailing dimensions; also one over that root."""
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    values = wide(x)
    if eps is None:
        eps = float(jnp.finfo(values.dtype).eps)
    rstd = lax.rsqrt(jnp.square(values).mean(axes, keepdims=True) + eps)
    out = values * rstd
    return (out if weight is None else out * wide(weight)).astype(x.dtype), rstd


@lowers(aten._fused_rms_norm_backward.default)
def fused_rms_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    normalized_shape: Sequence[int],
    rstd: jax.Array,
    weight: jax.Array | None,
    output_mask: Sequence[bool],
) -> tuple[jax.Array | None, jax.Array | None]:
    """Gradients of input and weight, each only where `output_mask` asks for it."""
    split = x.ndim - len(normalized_shape)
    inner, outer = tuple(range(split, x.ndim)), tuple(range(split))
    grad, rstd = wide(grad), wide(rstd)
    xhat = wide(x) * rstd
    grad_xhat = grad if weight is None else grad * wide(weight)
    mean_product = (grad_xhat * xhat).sum(inner, keepdims=True) / math.prod(normalized_shape)
    return (
        (grad_xhat - xhat * mean_product) * rstd if output_mask[0] else None,
        total(grad * xhat, outer) if output_mask[1] and weight is not None else None,
    )
