"""Softmax, its logarithm and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ...runtime import jax_dtype
from ._dtype import cast, promoted, widened
from ._table import lowers

aten = torch.ops.aten


@lowers(aten._softmax.default)
def _softmax(x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    x = widened(x)
    return jax.nn.softmax(x, dim) if x.ndim else jnp.ones_like(x)


@lowers(aten._log_softmax.default)
def _log_softmax(x: jax.Array, dim: int, half_to_float: bool) -> jax.Array:
    x = widened(x)
    return jax.nn.log_softmax(x, dim) if x.ndim else jnp.zeros_like(x)


@lowers(aten._safe_softmax.default)
def _safe_softmax(x: jax.Array, dim: int, dtype: torch.dtype | None = None) -> jax.Array:
    x = widened(x if dtype is None else cast(x, jax_dtype(dtype)))
    hidden = jnp.all(x == -jnp.inf, dim, keepdims=True)
    return jnp.where(hidden, 0, jax.nn.softmax(jnp.where(hidden, 0, x), dim))


@lowers(aten._softmax_backward_data.default)
def _softmax_backward(grad: jax.Array, output: jax.Array, dim: int, input_dtype: torch.dtype) -> jax.Array:
    grad, output = promoted(grad, output)
    weighted = grad * output
    return weighted - output * _sum(weighted, dim)


@lowers(aten._log_softmax_backward_data.default)
def _log_softmax_backward(grad: jax.Array, output: jax.Array, dim: int, input_dtype: torch.dtype) -> jax.Array:
    grad, output = promoted(grad, output)
    return grad - jnp.exp(output) * _sum(grad, dim)


def _sum(x: jax.Array, dim: int) -> jax.Array:
    return jnp.sum(x, dim, keepdims=True) if x.ndim else x
