"""GPT-2 124M in JAX and optax, as one would write it for TPU: bfloat16 compute, splash attention, `rbg` keys, bfloat16 logits.

Data parallel with `shard_map`: every core computes its part of the batch with a key of its own, gradients are averaged.
Attention has no dropout: JAX's TPU kernels have none. Embeddings, attention outputs and feed-forward outputs have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh

from .parts import Params, adamw_step, dense, dense_shapes, dropout, float32, heads_of, layer_norm, norm_shapes


@dataclass(frozen=True)
class Sizes:
    """GPT-2 124M with a batch per core; `interpret` runs its kernel where no TPU is."""

    layers: int = 12
    dim: int = 768
    heads: int = 12
    length: int = 1024
    vocabulary: int = 50257
    batch: int = 8
    dropout: float = 0.1
    dtype: Any = jnp.bfloat16
    interpret: bool = False


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    d = sizes.dim
    block = {
        "n1": norm_shapes(d),
        "qkv": [dense_shapes(d, d)] * 3,
        "out": dense_shapes(d, d),
        "n2": norm_shapes(d),
        "up": dense_shapes(d, 4 * d),
        "down": dense_shapes(4 * d, d),
    }
    return {
        "tokens": float32(sizes.vocabulary, d),
        "positions": float32(sizes.length, d),
        "blocks": [block] * sizes.layers,
        "norm": norm_shapes(d),
    }


def _attend(p: Params, x: jax.Array, sizes: Sizes) -> jax.Array:
    batch, length, dim = x.shape
    heads, width = sizes.heads, dim // sizes.heads
    block = min(1024, length)
    blocks = splash.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block, block_kv_dkv=block,
        block_kv_dkv_compute=block, use_fused_bwd_kernel=True,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    kernel = splash.make_splash_mha_single_device(mask, block_sizes=blocks, interpret=sizes.interpret)
    query, key, value = (heads_of(p["qkv"][i], x, heads) for i in range(3))
    out = jax.vmap(kernel)(query * jnp.asarray(width**-0.5, x.dtype), key, value)
    weights = p["out"]["w"].astype(x.dtype).reshape(heads, width, dim)
    return jnp.einsum("bhtk,hkd->btd", out, weights) + p["out"]["b"].astype(x.dtype)


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the next tokens."""
    keys = iter(jax.random.split(key, 2 * sizes.layers + 1))
    h = params["tokens"].astype(sizes.dtype)[tokens] + params["positions"].astype(sizes.dtype)
    h = dropout(h, next(keys), sizes.dropout)
    for p in params["blocks"]:
        h = h + dropout(_attend(p, layer_norm(p["n1"], h), sizes), next(keys), sizes.dropout)
        up = jax.nn.gelu(dense(p["up"], layer_norm(p["n2"], h)), approximate=True)
        h = h + dropout(dense(p["down"], up), next(keys), sizes.dropout)
    h = layer_norm(params["norm"], h).reshape(-1, sizes.dim)
    logits = h @ params["tokens"].astype(sizes.dtype).T
    return _cross_entropy(logits, targets.reshape(-1))


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Only the bfloat16 logits are kept; every float32 value of them lives inside a fusion."""
    logits = logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, -1)
    hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == targets[:, None]
    return (total - jnp.where(hit, logits, 0).sum(-1)).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [tokens, tokens])
