"""ViT-B/16 for classification in JAX and optax, as one would write it for TPU: bfloat16 compute, patches by one product.

Attention is either the plain form over the 197 tokens, or JAX's splash kernel over 256, of which 59 are padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from .attention import plain_attention, splash_attention
from .parts import Params, adamw_step, block_shapes, dense, dense_shapes, float32, heads_of, joined, layer_norm, norm_shapes

_EPSILON = 1e-12
"""Of ViT's layer normalizations (transformers' `ViTConfig.layer_norm_eps`)."""


@dataclass(frozen=True)
class Sizes:
    """ViT-B/16 with a batch per core; `interpret` runs the splash kernel where no TPU is."""

    layers: int = 12
    dim: int = 768
    heads: int = 12
    image: int = 224
    patch: int = 16
    classes: int = 1000
    batch: int = 64
    splash: bool = False
    dtype: Any = jnp.bfloat16
    interpret: bool = False

    @property
    def tokens(self) -> int:
        """Patches, and one for the class."""
        return (self.image // self.patch) ** 2 + 1


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    d = sizes.dim
    return {
        "patches": dense_shapes(3 * sizes.patch**2, d),
        "class": float32(d),
        "positions": float32(sizes.tokens, d),
        "blocks": [block_shapes(d)] * sizes.layers,
        "norm": norm_shapes(d),
        "head": dense_shapes(d, sizes.classes),
    }


def _attend(p: Params, x: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    width, tokens = sizes.dim // sizes.heads, x.shape[1]
    if sizes.splash:
        x = jnp.pad(x, ((0, 0), (0, -tokens % 128), (0, 0)))
    query, keys, value = (heads_of(p["qkv"][i], x, sizes.heads) for i in range(3))
    query = query * jnp.asarray(width**-0.5, x.dtype)
    if sizes.splash:
        seen = jnp.broadcast_to(jnp.arange(x.shape[1]) < tokens, x.shape[:2])
        out = splash_attention(query, keys, value, seen, sizes.interpret)[:, :, :tokens]
    else:
        out = plain_attention(query, keys, value, None, key, 0.0)
    return joined(p["out"], out)


def loss_of(params: Params, images: jax.Array, labels: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the classes; images are [batch, height, width, colour]."""
    side, patch = sizes.image // sizes.patch, sizes.patch
    cut = images.astype(sizes.dtype).reshape(-1, side, patch, side, patch, 3).transpose(0, 1, 3, 2, 4, 5)
    h = dense(params["patches"], cut.reshape(-1, side * side, 3 * patch**2))
    first = jnp.broadcast_to(params["class"].astype(sizes.dtype), (h.shape[0], 1, sizes.dim))
    h = jnp.concatenate([first, h], 1) + params["positions"].astype(sizes.dtype)
    for p in params["blocks"]:
        h = h + _attend(p, layer_norm(p["n1"], h, _EPSILON), key, sizes)
        up = jax.nn.gelu(dense(p["up"], layer_norm(p["n2"], h, _EPSILON)), approximate=False)
        h = h + dense(p["down"], up)
    logits = dense(params["head"], layer_norm(params["norm"], h[:, 0], _EPSILON))
    return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    images = jax.ShapeDtypeStruct((sizes.batch, sizes.image, sizes.image, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((sizes.batch,), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [images, labels])
