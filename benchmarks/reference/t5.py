"""T5 base in JAX and optax, as one would for TPU: bfloat16 compute, `rbg` keys, relative positions added to the scores.

Attention is the plain form: JAX's kernels have no bias that is learned and the same for every row of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from .attention import plain_attention
from .parts import Params, adamw_step, cross_entropies, dropout, float32, rms_norm

_IGNORED = -100
"""Label of a token that is not predicted, as in PyTorch's cross-entropy."""


@dataclass(frozen=True)
class Sizes:
    """T5 base with a batch per core: so many tokens in, so many out.

    Layers add to a stream of `stream` (None: of `dtype`), which is float32 under PyTorch's autocast.
    """

    layers: int = 12
    dim: int = 768
    heads: int = 12
    inner: int = 3072
    length: int = 512
    targets: int = 128
    vocabulary: int = 32128
    buckets: int = 32
    reach: int = 128
    batch: int = 8
    dropout: float = 0.1
    dtype: Any = jnp.bfloat16
    stream: Any = None


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes; the logits' weight is that of the tokens."""
    d = sizes.dim
    attention = {"norm": float32(d), "qkv": [float32(d, d)] * 3, "out": float32(d, d)}
    forward = {"norm": float32(d), "up": float32(d, sizes.inner), "down": float32(sizes.inner, d)}
    encoder = {"self": attention, "forward": forward}
    stacks = {
        name: {"near": float32(sizes.buckets, sizes.heads), "blocks": [block] * sizes.layers, "norm": float32(d)}
        for name, block in (("encoder", encoder), ("decoder", {**encoder, "cross": attention}))
    }
    return {"tokens": float32(sizes.vocabulary, d), **stacks}


def _near(table: jax.Array, length: int, sizes: Sizes, causal: bool) -> jax.Array:
    """What a key's distance adds to its score, [heads, length, length] (https://arxiv.org/abs/1910.10683, 2.1).

    Half of the buckets are single distances, the others grow with them; before and after have buckets of their own.
    """
    distance = jnp.arange(length)[None, :] - jnp.arange(length)[:, None]
    count = sizes.buckets if causal else sizes.buckets // 2
    far, exact = jnp.maximum(-distance, 0) if causal else jnp.abs(distance), count // 2
    grown = jnp.log(jnp.maximum(far, 1) / exact) / math.log(sizes.reach / exact) * (count - exact)
    bucket = jnp.where(far < exact, far, jnp.minimum(exact + grown.astype(jnp.int32), count - 1))
    if not causal:
        bucket += jnp.where(distance > 0, count, 0)
    # a product with ones and zeros: its gradient is a product, too, and not a scatter
    near = jnp.einsum("qkb,bh->hqk", jax.nn.one_hot(bucket, sizes.buckets, dtype=table.dtype), table)
    return jnp.where(jnp.tril(jnp.ones((length, length), bool)), near, jnp.finfo(near.dtype).min) if causal else near


def _attend(
    p: Params, x: jax.Array, given: jax.Array, bias: jax.Array | None, seen: jax.Array | None, draw: jax.Array, sizes: Sizes
) -> jax.Array:
    """Scores in float32, not scaled; `seen` says which of the keys are no padding, [batch, length]."""
    heads, width = sizes.heads, sizes.dim // sizes.heads
    weights = [w.astype(x.dtype).reshape(-1, heads, width) for w in p["qkv"]]
    query, key, value = (jnp.einsum("btd,dhk->bhtk", t, w) for t, w in zip((x, given, given), weights, strict=True))
    out = plain_attention(query, key, value, seen, draw, sizes.dropout, bias)
    return jnp.einsum("bhtk,hkd->btd", out, p["out"].astype(x.dtype).reshape(heads, width, -1))


def _forward(p: Params, x: jax.Array, draw: jax.Array, rate: float) -> jax.Array:
    up = jax.nn.relu(x @ p["up"].astype(x.dtype))
    return dropout(up, draw, rate) @ p["down"].astype(x.dtype)


def _stack(
    p: Params,
    h: jax.Array,
    bias: jax.Array,
    seen: jax.Array,
    encoded: jax.Array | None,
    draws: Iterator[jax.Array],
    sizes: Sizes,
) -> jax.Array:
    """The encoder where nothing is encoded yet, else the decoder, which sees all of its own tokens and the encoder's."""
    rate, dtype = sizes.dropout, sizes.dtype
    h = dropout(h, next(draws), rate)
    for block in p["blocks"]:
        x = rms_norm(block["self"]["norm"], h, dtype)
        attended = _attend(block["self"], x, x, bias, seen if encoded is None else None, next(draws), sizes)
        h = h + dropout(attended, next(draws), rate)
        if encoded is not None:
            x = rms_norm(block["cross"]["norm"], h, dtype)
            h = h + dropout(_attend(block["cross"], x, encoded, None, seen, next(draws), sizes), next(draws), rate)
        x = rms_norm(block["forward"]["norm"], h, dtype)
        h = h + dropout(_forward(block["forward"], x, next(draws), rate), next(draws), rate)
    return dropout(rms_norm(p["norm"], h, dtype), next(draws), rate)


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the tokens to predict, of all cores: a core's sum over their mean count."""
    draws = iter(jax.random.split(key, 10 * sizes.layers + 4))
    seen, words = tokens != 0, params["tokens"].astype(sizes.stream or sizes.dtype)
    counted = targets != _IGNORED
    begun = jnp.pad(jnp.where(counted, targets, 0)[:, :-1], ((0, 0), (1, 0)))
    stacks = params["encoder"], params["decoder"]
    lengths = sizes.length, sizes.targets
    near = [_near(p["near"], n, sizes, causal) for p, n, causal in zip(stacks, lengths, (False, True), strict=True)]
    encoded = _stack(stacks[0], words[tokens], near[0], seen, None, draws, sizes)
    h = _stack(stacks[1], words[begun], near[1], seen, encoded, draws, sizes)
    logits = (h * sizes.dim**-0.5) @ params["tokens"].astype(sizes.dtype).T
    total = jnp.where(counted, cross_entropies(logits, targets), 0).sum()
    return total / jax.lax.pmean(counted.sum(), "data")


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    batch = [jax.ShapeDtypeStruct((sizes.batch, n), jnp.int32) for n in (sizes.length, sizes.targets)]
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), batch)
