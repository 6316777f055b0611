"""ConvNeXt-T in JAX and optax, as one would write it for TPU: NHWC, bfloat16 compute, normalizations in float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from .parts import (
    Params,
    adamw_step,
    convolution,
    convolution_shapes,
    cross_entropies,
    dense,
    dense_shapes,
    float32,
    layer_norm,
    norm_shapes,
)

_EPSILON = 1e-6
"""Of the layer normalizations between convolutions (transformers' `ConvNextLayerNorm`); the last one has 1e-12."""


@dataclass(frozen=True)
class Sizes:
    """ConvNeXt-T with a batch per core; `stream` is what layers add to (None: `dtype`), float32 under PyTorch's autocast."""

    depths: tuple[int, ...] = (3, 3, 9, 3)
    widths: tuple[int, ...] = (96, 192, 384, 768)
    image: int = 224
    classes: int = 1000
    batch: int = 64
    dtype: Any = jnp.bfloat16
    stream: Any = None


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""

    def block(d: int) -> Params:
        parts = {"deep": convolution_shapes(7, 1, d), "norm": norm_shapes(d), "scale": float32(d)}
        return {**parts, "up": dense_shapes(d, 4 * d), "down": dense_shapes(4 * d, d)}

    stages = []
    for before, width, depth in zip((None, *sizes.widths), sizes.widths, sizes.depths, strict=False):
        stage: Params = {"blocks": [block(width)] * depth}
        if before:
            stage |= {"norm": norm_shapes(before), "down": convolution_shapes(2, before, width)}
        stages.append(stage)
    first, last = sizes.widths[0], sizes.widths[-1]
    head = {"last": norm_shapes(last), "head": dense_shapes(last, sizes.classes)}
    return {"stem": convolution_shapes(4, 3, first), "norm": norm_shapes(first), "stages": stages, **head}


def loss_of(params: Params, images: jax.Array, labels: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of a core's images, [batch, height, width, colour]."""
    dtype, stream = sizes.dtype, sizes.stream or sizes.dtype
    h = layer_norm(params["norm"], convolution(params["stem"], images.astype(dtype), 4, (0, 0)), _EPSILON).astype(stream)
    for stage in params["stages"]:
        if "down" in stage:
            h = convolution(stage["down"], layer_norm(stage["norm"], h, _EPSILON).astype(dtype), 2, (0, 0)).astype(stream)
        for p in stage["blocks"]:
            r = layer_norm(p["norm"], convolution(p["deep"], h.astype(dtype)), _EPSILON)
            r = dense(p["down"], jax.nn.gelu(dense(p["up"], r), approximate=False))
            h = h + p["scale"].astype(stream) * r
    pooled = layer_norm(params["last"], h.astype(jnp.float32).mean((1, 2)), 1e-12).astype(dtype)
    return cross_entropies(dense(params["head"], pooled), labels).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    images = jax.ShapeDtypeStruct((sizes.batch, sizes.image, sizes.image, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((sizes.batch,), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [images, labels])
