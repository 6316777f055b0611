"""Attention by its definition: what other kernels must equal, and what computes where none of them does."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ._keys import bernoulli_by_row
from ._mixed_product import mixed_product

Mask = jax.Array | None


def plain_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    draw: Mask,
    *,
    causal: bool,
    scale: float,
    dropout: float,
) -> jax.Array:
    """Attention by its definition: products of the inputs' dtype, accumulated in float32 at least; softmax in that.

    Args:
        query: (..., heads, length, features).
        key: (..., heads or a divisor, other length, features).
        value: (..., heads or a divisor, other length, other features).
        mask: broadcasts to (..., heads, length, other length); booleans say what takes part, numbers are added.
        draw: random key data, for dropout.
        causal: whether position i sees the positions up to i only.
        scale: what scores are multiplied by.
        dropout: the share of probabilities that is set to zero.
    """
    key, value = _repeated(key, query), _repeated(value, query)
    wide = jnp.promote_types(query.dtype, jnp.float32)
    scores = mixed_product("...qd,...kd->...qk", query, key) * jnp.asarray(scale, wide)
    probabilities = _softmax(_masked(scores, mask, causal))
    if draw is not None:
        kept = bernoulli_by_row(draw, 1 - dropout, probabilities.shape)
        probabilities = probabilities * kept.astype(wide) * (0.0 if dropout == 1 else 1 / (1 - dropout))
    return mixed_product("...qk,...kd->...qd", probabilities, value).astype(query.dtype)


def _repeated(x: jax.Array, query: jax.Array) -> jax.Array:
    """Keys or values with one head for every head of the query (grouped-query attention)."""
    if x.ndim < 3 or x.shape[-3] in (1, query.shape[-3]):
        return x
    return jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3)


def _masked(scores: jax.Array, mask: Mask, causal: bool) -> jax.Array:
    if mask is not None and mask.dtype != jnp.bool_:
        scores = scores + mask.astype(scores.dtype)
    elif mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=jnp.bool_), scores, -jnp.inf)
    return scores


def _softmax(scores: jax.Array) -> jax.Array:
    """Softmax in which a row that may look nowhere is zero, as in PyTorch; its gradient is zero, too."""
    peak = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True, initial=-jnp.inf))
    empty = peak == -jnp.inf
    exponentials = jnp.exp(scores - jnp.where(empty, 0, peak))
    return exponentials / jnp.where(empty, 1, jnp.sum(exponentials, axis=-1, keepdims=True))
