"""ResNet-50 in JAX and optax, as one would write it for TPU: NHWC, bfloat16 compute, statistics of BatchNorm per core.

Data parallel with `shard_map`: every core normalises its own part of the batch, gradients are averaged, and so are the
running statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .parts import dense, dense_shapes, float32, placed

Tree = Any


@dataclass(frozen=True)
class Sizes:
    """ResNet-50 with a batch per core."""

    depths: tuple[int, ...] = (3, 4, 6, 3)
    image: int = 224
    classes: int = 1000
    batch: int = 128


def shapes(sizes: Sizes) -> tuple[Tree, Tree]:
    """Parameters and running statistics, as shapes."""

    def conv(size: int, i: int, o: int) -> Tree:
        return {"w": float32(size, size, i, o), "scale": float32(o), "bias": float32(o)}

    def statistics(o: int) -> Tree:
        return {"mean": float32(o), "variance": float32(o)}

    params: Tree = {"stem": conv(7, 3, 64), "blocks": []}
    running: Tree = {"stem": statistics(64), "blocks": []}
    inputs = 64
    for stage, depth in enumerate(sizes.depths):
        width = 64 * 2**stage
        for index in range(depth):
            block = {"conv1": conv(1, inputs, width), "conv2": conv(3, width, width), "conv3": conv(1, width, 4 * width)}
            if index == 0:
                block["shortcut"] = conv(1, inputs, 4 * width)
            params["blocks"].append(block)
            running["blocks"].append({name: statistics(p["scale"].shape[0]) for name, p in block.items()})
            inputs = 4 * width
    params["head"] = dense_shapes(inputs, sizes.classes)
    return params, running


def _conv_norm(p: Tree, running: Tree, x: jax.Array, stride: int = 1) -> tuple[jax.Array, Tree]:
    """A convolution and BatchNorm in training; the new running statistics."""
    size = p["w"].shape[0]
    pad = [((size - 1) // 2,) * 2] * 2
    x = jax.lax.conv_general_dilated(
        x, p["w"].astype(jnp.bfloat16), (stride, stride), pad, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    values = x.astype(jnp.float32)
    # both sums in one pass over the activations
    mean = values.mean((0, 1, 2))
    variance = jnp.square(values).mean((0, 1, 2)) - jnp.square(mean)
    count = x.size // x.shape[-1]
    new = {
        "mean": 0.9 * running["mean"] + 0.1 * mean,
        "variance": 0.9 * running["variance"] + 0.1 * variance * (count / (count - 1)),
    }
    factor = jax.lax.rsqrt(variance + 1e-5) * p["scale"]
    return (values * factor + (p["bias"] - mean * factor)).astype(jnp.bfloat16), new


def _apply(params: Tree, running: Tree, x: jax.Array) -> tuple[jax.Array, Tree]:
    new: Tree = {"blocks": []}
    h, new["stem"] = _conv_norm(params["stem"], running["stem"], x.astype(jnp.bfloat16), 2)
    h = jax.nn.relu(h)
    h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    for p, old in zip(params["blocks"], running["blocks"], strict=True):
        stride = 2 if "shortcut" in p and p["conv1"]["w"].shape[-1] > 64 else 1
        fresh: Tree = {}
        r, fresh["conv1"] = _conv_norm(p["conv1"], old["conv1"], h)
        r, fresh["conv2"] = _conv_norm(p["conv2"], old["conv2"], jax.nn.relu(r), stride)
        r, fresh["conv3"] = _conv_norm(p["conv3"], old["conv3"], jax.nn.relu(r))
        if "shortcut" in p:
            h, fresh["shortcut"] = _conv_norm(p["shortcut"], old["shortcut"], h, stride)
        h = jax.nn.relu(h + r)
        new["blocks"].append(fresh)
    pooled = h.astype(jnp.float32).mean((1, 2)).astype(jnp.bfloat16)
    return dense(params["head"], pooled), new


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    optimizer = optax.chain(optax.add_decayed_weights(1e-4), optax.sgd(0.1, momentum=0.9))
    data, everywhere = PartitionSpec("data"), PartitionSpec()

    def loss_of(params: Tree, running: Tree, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, Tree]:
        logits, new = _apply(params, running, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels).mean(), new

    def on_core(params: Tree, running: Tree, images: jax.Array, labels: jax.Array) -> Any:
        found = jax.value_and_grad(loss_of, has_aux=True)(params, running, images, labels)
        return jax.lax.pmean(found, "data")

    parallel = jax.shard_map(
        on_core, mesh=mesh, in_specs=(everywhere, everywhere, data, data), out_specs=everywhere, check_vma=False
    )

    def step(params: Tree, running: Tree, moments: Tree, images: jax.Array, labels: jax.Array) -> Any:
        (loss, running), grads = parallel(params, running, images, labels)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), running, moments, loss

    params, running = shapes(sizes)
    moments = jax.eval_shape(optimizer.init, params)
    count = sizes.batch * mesh.size
    images = jax.ShapeDtypeStruct((count, sizes.image, sizes.image, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((count,), jnp.int32)

    whole, divided = NamedSharding(mesh, everywhere), NamedSharding(mesh, data)
    state = (placed(tree, whole) for tree in (params, running, moments))
    return jax.jit(step, donate_argnums=(0, 1, 2)), (*state, placed(images, divided), placed(labels, divided))
