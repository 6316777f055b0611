"""A diffusion model's U-Net in JAX and optax, as one would write it for TPU: NHWC, bfloat16 compute, norms in float32.

The network is that of DDPM for CIFAR-10 (https://arxiv.org/abs/2006.11239, appendix B) as diffusers has it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from .attention import plain_attention
from .parts import Params, adamw_step, convolution, convolution_shapes, dense, dense_shapes, norm_shapes

_EPSILON = 1e-6
"""Of the group normalizations."""


@dataclass(frozen=True)
class Sizes:
    """DDPM's network for 32 x 32 images with a batch per core; stage 1 looks at all of an image, and so does the middle."""

    widths: tuple[int, ...] = (128, 256, 256, 256)
    depth: int = 2
    groups: int = 32
    image: int = 32
    batch: int = 64
    dtype: Any = jnp.bfloat16


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    first, time = sizes.widths[0], 4 * sizes.widths[0]

    def block(i: int, o: int) -> Params:
        parts: Params = {"norm1": norm_shapes(i), "conv1": convolution_shapes(3, i, o), "time": dense_shapes(time, o)}
        parts |= {"norm2": norm_shapes(o), "conv2": convolution_shapes(3, o, o)}
        return parts if i == o else {**parts, "short": convolution_shapes(1, i, o)}

    def attention(d: int) -> Params:
        return {"norm": norm_shapes(d), "qkv": [dense_shapes(d, d)] * 3, "out": dense_shapes(d, d)}

    def stage(inputs: Sequence[int], width: int, looks: bool) -> Params:
        return {"blocks": [block(i, width) for i in inputs], "looks": [attention(width) for _ in inputs] if looks else []}

    down, skipped, before = [], [first], first
    for number, width in enumerate(sizes.widths):
        part = stage([before, *[width] * (sizes.depth - 1)], width, number == 1)
        skipped += [width] * sizes.depth
        if number < len(sizes.widths) - 1:
            part["move"] = convolution_shapes(3, width, width)
            skipped.append(width)
        down.append(part)
        before = width
    middle = stage([before, before], before, True)
    middle["looks"].pop()
    up = []
    for number, width in reversed(list(enumerate(sizes.widths))):
        inputs = []
        for _ in range(sizes.depth + 1):
            inputs.append(before + skipped.pop())
            before = width
        part = stage(inputs, width, number == 1)
        if number:
            part["move"] = convolution_shapes(3, width, width)
        up.append(part)
    return {
        "time": [dense_shapes(first, time), dense_shapes(time, time)],
        "first": convolution_shapes(3, 3, first),
        "down": down,
        "middle": middle,
        "up": up,
        "norm": norm_shapes(first),
        "last": convolution_shapes(3, first, 3),
    }


def _group_norm(p: Params, x: jax.Array, groups: int, dtype: Any) -> jax.Array:
    """Over the places and the features of a group, of [batch, ..., features]."""
    h = x.astype(jnp.float32).reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    mean = h.mean((1, 3), keepdims=True)
    variance = jnp.square(h - mean).mean((1, 3), keepdims=True)
    h = ((h - mean) * jax.lax.rsqrt(variance + _EPSILON)).reshape(x.shape)
    return (h * p["scale"] + p["bias"]).astype(dtype)


def _block(p: Params, x: jax.Array, time: jax.Array, sizes: Sizes) -> jax.Array:
    dtype = sizes.dtype
    h = convolution(p["conv1"], jax.nn.silu(_group_norm(p["norm1"], x, sizes.groups, dtype)))
    h = h + dense(p["time"], jax.nn.silu(time))[:, None, None]
    h = convolution(p["conv2"], jax.nn.silu(_group_norm(p["norm2"], h, sizes.groups, dtype)))
    return (convolution(p["short"], x) if "short" in p else x) + h


def _look(p: Params, x: jax.Array, sizes: Sizes) -> jax.Array:
    """Attention of one head over all places."""
    batch, height, width, features = x.shape
    h = _group_norm(p["norm"], x, sizes.groups, sizes.dtype).reshape(batch, 1, height * width, features)
    query, key, value = (dense(one, h) for one in p["qkv"])
    query = query * jnp.asarray(features**-0.5, query.dtype)
    none = jax.random.key(0, impl="rbg")
    return x + dense(p["out"], plain_attention(query, key, value, None, none, 0.0)).reshape(x.shape)


def _stage(p: Params, x: jax.Array, time: jax.Array, skipped: list[jax.Array] | None, sizes: Sizes) -> list[jax.Array]:
    """What each block gives; with `skipped`, each takes one of these, too, the last first."""
    given = []
    for number, block in enumerate(p["blocks"]):
        x = _block(block, x if skipped is None else jnp.concatenate([x, skipped.pop()], -1), time, sizes)
        x = _look(p["looks"][number], x, sizes) if number < len(p["looks"]) else x
        given.append(x)
    return given


def _time(p: Params, steps: jax.Array, sizes: Sizes) -> jax.Array:
    """Sines and cosines of a time step, and two layers."""
    half = sizes.widths[0] // 2
    turns = jnp.exp(-math.log(10_000) * jnp.arange(half) / (half - 1))
    angles = steps[:, None] * turns
    h = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(sizes.dtype)
    return dense(p[1], jax.nn.silu(dense(p[0], h)))


def loss_of(params: Params, images: jax.Array, steps: jax.Array, noise: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean square of what is wrong in the noise that is found in images, [batch, height, width, colour]."""
    time = _time(params["time"], steps, sizes)
    x = convolution(params["first"], images.astype(sizes.dtype))
    skipped = [x]
    for stage in params["down"]:
        skipped += _stage(stage, skipped[-1], time, None, sizes)
        if "move" in stage:
            skipped.append(convolution(stage["move"], skipped[-1], 2, (0, 1)))
    x = _stage(params["middle"], skipped[-1], time, None, sizes)[-1]
    for stage in params["up"]:
        x = _stage(stage, x, time, skipped, sizes)[-1]
        if "move" in stage:
            batch, height, width, features = x.shape
            doubled = jnp.broadcast_to(x[:, :, None, :, None], (batch, height, 2, width, 2, features))
            x = convolution(stage["move"], doubled.reshape(batch, 2 * height, 2 * width, features))
    x = convolution(params["last"], jax.nn.silu(_group_norm(params["norm"], x, sizes.groups, sizes.dtype)))
    return jnp.square(x.astype(jnp.float32) - noise).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    images = jax.ShapeDtypeStruct((sizes.batch, sizes.image, sizes.image, 3), jnp.float32)
    steps = jax.ShapeDtypeStruct((sizes.batch,), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [images, steps, images])
