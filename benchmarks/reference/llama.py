"""Llama in JAX and optax, as one would write it for TPU: bfloat16 compute, splash attention over shared heads, bfloat16 logits.

The layers are those of Llama 3.2 1B: grouped queries, rotary positions, RMS norms, SwiGLU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh

from .attention import splash_kernel
from .parts import Params, adamw_step, cross_entropies, float32, rms_norm


@dataclass(frozen=True)
class Sizes:
    """Six layers of Llama 3.2 1B with a batch per core: all sixteen do not fit a v5e's core with AdamW's state.

    Layers add to a stream of `stream` (None: of `dtype`), which is float32 under PyTorch's autocast; `interpret` runs
    the kernel where no TPU is.
    """

    layers: int = 6
    dim: int = 2048
    heads: int = 32
    shared: int = 8
    inner: int = 8192
    length: int = 2048
    vocabulary: int = 32000
    batch: int = 2
    dtype: Any = jnp.bfloat16
    stream: Any = None
    interpret: bool = False

    @property
    def width(self) -> int:
        """Of a head."""
        return self.dim // self.heads


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes; the logits' weight is that of the tokens."""
    d, keys = sizes.dim, sizes.shared * sizes.width
    block = {
        "n1": float32(d),
        "query": float32(d, d),
        "key": float32(d, keys),
        "value": float32(d, keys),
        "out": float32(d, d),
        "n2": float32(d),
        "gate": float32(d, sizes.inner),
        "up": float32(d, sizes.inner),
        "down": float32(sizes.inner, d),
    }
    return {"tokens": float32(sizes.vocabulary, d), "blocks": [block] * sizes.layers, "norm": float32(d)}


def _angles(sizes: Sizes) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines, [length, width], of rotary positions (https://arxiv.org/abs/2104.09864)."""
    turns = 10_000.0 ** (-jnp.arange(0, sizes.width, 2) / sizes.width)
    angles = jnp.tile(jnp.arange(sizes.length)[:, None] * turns, 2)
    return jnp.cos(angles), jnp.sin(angles)


def _turned(x: jax.Array, angles: tuple[jax.Array, jax.Array]) -> jax.Array:
    one, other = jnp.split(x, 2, -1)
    cosine, sine = angles
    return (x * cosine + jnp.concatenate([-other, one], -1) * sine).astype(x.dtype)


def _attend(p: Params, x: jax.Array, angles: tuple[jax.Array, jax.Array], sizes: Sizes) -> jax.Array:
    groups, width, length = sizes.heads // sizes.shared, sizes.width, sizes.length
    weights = p["query"].astype(x.dtype).reshape(-1, sizes.shared, groups, width)
    query = jnp.einsum("btd,dhgk->bhgtk", x, weights)
    key, value = (
        jnp.einsum("btd,dhk->bhtk", x, p[name].astype(x.dtype).reshape(-1, sizes.shared, width)) for name in ("key", "value")
    )
    kernel = splash_kernel(masks.CausalMask((length, length)), groups, min(1024, length), sizes.interpret, share_keys=True)
    scale = jnp.asarray(width**-0.5, x.dtype)
    heads = jax.vmap(jax.vmap(kernel))(_turned(query, angles) * scale, _turned(key, angles), value)
    return jnp.einsum("bhgtk,hgkd->btd", heads, p["out"].astype(x.dtype).reshape(sizes.shared, groups, width, -1))


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of what follows each token but the last."""
    angles = _angles(sizes)
    h = params["tokens"].astype(sizes.stream or sizes.dtype)[tokens]
    for p in params["blocks"]:
        h = h + _attend(p, rms_norm(p["n1"], h, sizes.dtype), angles, sizes)
        normal = rms_norm(p["n2"], h, sizes.dtype)
        gate, up = (normal @ p[name].astype(sizes.dtype) for name in ("gate", "up"))
        h = h + (jax.nn.silu(gate) * up) @ p["down"].astype(sizes.dtype)
    h = rms_norm(params["norm"], h, sizes.dtype)
    logits = h @ params["tokens"].astype(sizes.dtype).T
    # targets one to the left, so that the logits stay whole
    losses = cross_entropies(logits, jnp.roll(targets, -1, 1))
    return jnp.where(jnp.arange(sizes.length) < sizes.length - 1, losses, 0).sum() / (losses.size - losses.shape[0])


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [tokens, tokens])
