"""Attention that sees every key but padding, in two ways: the plain form, and JAX's splash kernel."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

from .parts import dropout


def plain_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    seen: jax.Array | None,
    draw: jax.Array,
    rate: float,
    bias: jax.Array | None = None,
) -> jax.Array:
    """Scores in float32; probabilities with dropout.

    Args:
        query: [batch, heads, length, width], scaled.
        key: as the query.
        value: as the query.
        seen: [batch, length], which keys are no padding; None where none is.
        draw: the key of the dropout.
        rate: of the dropout.
        bias: [heads, length, length], what is added to scores; None for nothing.
    """
    scores = jnp.einsum("bhqk,bhsk->bhqs", query, key, preferred_element_type=jnp.float32)
    if bias is not None:
        scores = scores + bias
    if seen is not None:
        scores = jnp.where(seen[:, None, None, :], scores, jnp.finfo(jnp.float32).min)
    probabilities = jax.nn.softmax(scores, -1).astype(value.dtype)
    return jnp.einsum("bhqs,bhsk->bhqk", dropout(probabilities, draw, rate), value)


def splash_attention(query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array, interpret: bool) -> jax.Array:
    """The kernel, without dropout; padding is a segment of keys that no query is in.

    Args:
        query: [batch, heads, length, width], scaled; the length is a multiple of 128.
        key: as the query.
        value: as the query.
        seen: [batch, length], which keys are no padding.
        interpret: whether to run it where no TPU is.
    """
    heads, length = query.shape[1:3]
    kernel = splash_kernel(masks.FullMask((length, length)), heads, min(512, length), interpret)
    segments = splash.SegmentIds(jnp.ones_like(seen, jnp.int32), seen.astype(jnp.int32))
    return jax.vmap(kernel)(query, key, value, segments)


def splash_kernel(mask: masks.Mask, heads: int, block: int, interpret: bool, *, share_keys: bool = False) -> Any:
    """JAX's kernel for one batch element, with its gradients in one pass.

    Args:
        mask: of one head.
        heads: how many there are.
        block: queries and keys of a tile.
        interpret: whether to run it where no TPU is.
        share_keys: whether these heads have one head of keys and values together, and the batch element is a group of them.
    """
    make = splash.make_splash_mqa_single_device if share_keys else splash.make_splash_mha_single_device
    blocks = splash.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block, block_kv_dkv=block,
        block_kv_dkv_compute=block, use_fused_bwd_kernel=True,
    )  # fmt: skip
    return make(masks.MultiHeadMask([mask] * heads), block_sizes=blocks, interpret=interpret)
