"""BERT base for masked language modelling in JAX and optax, as one would write it for TPU: bfloat16 compute, `rbg` keys.

Padding is masked. Attention is either the plain form, with dropout on its probabilities as BERT has it, or JAX's splash
kernel with padding as segments, which has no dropout: less work than BERT's. Everything else has dropout in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from .attention import plain_attention, splash_attention
from .parts import (
    Params,
    adamw_step,
    block_shapes,
    cross_entropies,
    dense,
    dense_shapes,
    dropout,
    float32,
    heads_of,
    joined,
    layer_norm,
    norm_shapes,
)

_EPSILON = 1e-12
"""Of BERT's layer normalizations (transformers' `BertConfig.layer_norm_eps`)."""

_IGNORED = -100
"""Label of a token that is not predicted, as in PyTorch's cross-entropy."""


@dataclass(frozen=True)
class Sizes:
    """BERT base with a batch per core.

    Layers add to a stream of `stream` (None: of `dtype`), which is float32 under PyTorch's autocast; `interpret` runs
    the splash kernel where no TPU is.
    """

    layers: int = 12
    dim: int = 768
    heads: int = 12
    length: int = 512
    vocabulary: int = 30522
    batch: int = 8
    dropout: float = 0.1
    splash: bool = False
    dtype: Any = jnp.bfloat16
    stream: Any = None
    interpret: bool = False


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    d = sizes.dim
    return {
        "tokens": float32(sizes.vocabulary, d),
        "positions": float32(512, d),
        "kinds": float32(2, d),
        "norm": norm_shapes(d),
        "blocks": [block_shapes(d)] * sizes.layers,
        "head": {"dense": dense_shapes(d, d), "norm": norm_shapes(d), "bias": float32(sizes.vocabulary)},
    }


def _attend(p: Params, x: jax.Array, seen: jax.Array, draw: jax.Array, sizes: Sizes) -> jax.Array:
    width = sizes.dim // sizes.heads
    query, key, value = (heads_of(p["qkv"][i], x, sizes.heads) for i in range(3))
    query = query * jnp.asarray(width**-0.5, x.dtype)
    if sizes.splash:
        out = splash_attention(query, key, value, seen, sizes.interpret)
    else:
        out = plain_attention(query, key, value, seen, draw, sizes.dropout)
    return joined(p["out"], out)


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the tokens to predict, of all cores: a core's sum over their mean count."""
    keys = iter(jax.random.split(key, 3 * sizes.layers + 1))
    seen, words = tokens != 0, params["tokens"].astype(sizes.dtype)
    stream = sizes.stream or sizes.dtype
    h = params["tokens"].astype(stream)[tokens] + (params["positions"][: sizes.length] + params["kinds"][0]).astype(stream)
    h = dropout(layer_norm(params["norm"], h, _EPSILON), next(keys), sizes.dropout)
    for p in params["blocks"]:
        attended = _attend(p, h.astype(sizes.dtype), seen, next(keys), sizes)
        h = layer_norm(p["n1"], h + dropout(attended, next(keys), sizes.dropout), _EPSILON)
        up = jax.nn.gelu(dense(p["up"], h.astype(sizes.dtype)), approximate=False)
        h = layer_norm(p["n2"], h + dropout(dense(p["down"], up), next(keys), sizes.dropout), _EPSILON)
    h = jax.nn.gelu(dense(params["head"]["dense"], h.reshape(-1, sizes.dim).astype(sizes.dtype)), approximate=False)
    logits = layer_norm(params["head"]["norm"], h, _EPSILON) @ words.T + params["head"]["bias"].astype(sizes.dtype)
    targets = targets.reshape(-1)
    counted = targets != _IGNORED
    total = jnp.where(counted, cross_entropies(logits, targets), 0).sum()
    return total / jax.lax.pmean(counted.sum(), "data")


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [tokens, tokens])
