"""GPT-2 124M in JAX and optax, as one would write it for TPU: bfloat16 compute, splash attention, `rbg` keys, bfloat16 logits.

Data parallel with `shard_map`: every core computes its part of the batch with a key of its own, gradients are averaged.
Embeddings, attention outputs and feed-forward outputs have dropout. Attention is either JAX's splash kernel, which has none,
or the plain form, with dropout on its probabilities as GPT-2 has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh

from .attention import plain_attention, splash_kernel
from .parts import (
    Params,
    adamw_step,
    block_shapes,
    cross_entropies,
    dense,
    dropout,
    float32,
    heads_of,
    joined,
    layer_norm,
    norm_shapes,
)


@dataclass(frozen=True)
class Sizes:
    """GPT-2 124M with a batch per core.

    Layers add to a stream of `stream` (None: of `dtype`), which is float32 under PyTorch's autocast; `interpret` runs
    the splash kernel where no TPU is.
    """

    layers: int = 12
    dim: int = 768
    heads: int = 12
    length: int = 1024
    vocabulary: int = 50257
    batch: int = 8
    dropout: float = 0.1
    splash: bool = True
    dtype: Any = jnp.bfloat16
    stream: Any = None
    interpret: bool = False


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    d = sizes.dim
    return {
        "tokens": float32(sizes.vocabulary, d),
        "positions": float32(sizes.length, d),
        "blocks": [block_shapes(d)] * sizes.layers,
        "norm": norm_shapes(d),
    }


def _attend(p: Params, x: jax.Array, draw: jax.Array, sizes: Sizes) -> jax.Array:
    length, heads = x.shape[1], sizes.heads
    query, key, value = (heads_of(p["qkv"][i], x, heads) for i in range(3))
    query = query * jnp.asarray((sizes.dim // heads) ** -0.5, x.dtype)
    if sizes.splash:
        kernel = splash_kernel(masks.CausalMask((length, length)), heads, min(1024, length), sizes.interpret)
        out = jax.vmap(kernel)(query, key, value)
    else:
        later = jnp.where(jnp.tril(jnp.ones((length, length), bool)), 0, jnp.finfo(jnp.float32).min)
        out = plain_attention(query, key, value, None, draw, sizes.dropout, later)
    return joined(p["out"], out)


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the next tokens."""
    keys = iter(jax.random.split(key, 3 * sizes.layers + 1))
    stream = sizes.stream or sizes.dtype
    h = params["tokens"].astype(stream)[tokens] + params["positions"].astype(stream)
    h = dropout(h, next(keys), sizes.dropout)
    for p in params["blocks"]:
        normal = layer_norm(p["n1"], h).astype(sizes.dtype)
        h = h + dropout(_attend(p, normal, next(keys), sizes), next(keys), sizes.dropout)
        up = jax.nn.gelu(dense(p["up"], layer_norm(p["n2"], h).astype(sizes.dtype)), approximate=True)
        h = h + dropout(dense(p["down"], up), next(keys), sizes.dropout)
    h = layer_norm(params["norm"], h).reshape(-1, sizes.dim).astype(sizes.dtype)
    logits = h @ params["tokens"].astype(sizes.dtype).T
    return cross_entropies(logits, targets.reshape(-1)).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [tokens, tokens])
