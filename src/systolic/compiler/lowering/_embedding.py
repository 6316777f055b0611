"""Embedding tables."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._pullback import index32, wide
from ._reduction import vector_norm
from ._table import lowers

aten = torch.ops.aten


@lowers(aten.embedding.default)
def embedding(
    weight: jax.Array,
    indices: jax.Array,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> jax.Array:
    """Rows of `weight`."""
    current().require_in_range(indices, weight.shape[0])
    return jnp.take(weight, index32(indices, weight.shape[0]), axis=0)


@lowers(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    grad: jax.Array, indices: jax.Array, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> jax.Array:
    """Sum the gradients of each row's uses; `padding_idx` gets none."""
    rows = index32(indices, num_weights).reshape(-1)
    width = grad.shape[indices.ndim :]
    grad_rows = wide(grad).reshape(rows.shape[0], *width)
    if scale_grad_by_freq:
        uses = jnp.zeros(num_weights, grad_rows.dtype).at[rows].add(1)
        grad_rows = grad_rows / uses[rows].reshape((-1,) + (1,) * len(width))
    if padding_idx >= 0:
        # one past the table: dropped by the scatter
        rows = jnp.where(rows == padding_idx, num_weights, rows)
    total = jnp.zeros((num_weights, *width), grad_rows.dtype).at[rows].add(grad_rows, mode="drop")
    return total.astype(grad.dtype)


@lowers(aten.embedding_renorm.default)
def embedding_renorm(weight: jax.Array, indices: jax.Array, max_norm: float, norm_type: float) -> jax.Array:
    """The table, with the rows that are looked up scaled down to `max_norm`."""
    current().require_in_range(indices, weight.shape[0])
    chosen = index32(indices, weight.shape[0]).reshape(-1)
    rows = weight[chosen]
    norms = vector_norm(wide(rows), norm_type, (1,), keepdim=True)
    # the small number is PyTorch's
    scales = jnp.where(norms > max_norm, max_norm / (norms + 1e-7), 1)
    # a row that is looked up twice is written twice, with the same numbers
    return weight.at[chosen].set((rows * scales).astype(weight.dtype))
