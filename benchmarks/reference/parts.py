"""Parts that several references share: layers with bfloat16 compute, float32 parameters and `rbg` keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Params = Any
Loss = Callable[..., jax.Array]
"""Of the parameters, the tensors of a core's part of the batch, and a key of its own."""

DATA, EVERYWHERE = PartitionSpec("data"), PartitionSpec()


def float32(*shape: int) -> jax.ShapeDtypeStruct:
    """A parameter, as a shape."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def dense_shapes(i: int, o: int) -> Params:
    """A linear layer's parameters."""
    return {"w": float32(i, o), "b": float32(o)}


def norm_shapes(d: int) -> Params:
    """A layer normalization's parameters."""
    return {"scale": float32(d), "bias": float32(d)}


def block_shapes(d: int) -> Params:
    """The parameters of a transformer's layer."""
    return {
        "n1": norm_shapes(d),
        "qkv": [dense_shapes(d, d)] * 3,
        "out": dense_shapes(d, d),
        "n2": norm_shapes(d),
        "up": dense_shapes(d, 4 * d),
        "down": dense_shapes(4 * d, d),
    }


def convolution_shapes(size: int, i: int, o: int) -> Params:
    """A square convolution's parameters; of one with groups, `i` is what a group takes."""
    return {"w": float32(size, size, i, o), "b": float32(o)}


def convolution(p: Params, x: jax.Array, stride: int = 1, pads: tuple[int, int] | None = None) -> jax.Array:
    """A convolution of [batch, height, width, features], by default padded to the same size."""
    weight = p["w"].astype(x.dtype)
    out = jax.lax.conv_general_dilated(
        x,
        weight,
        (stride, stride),
        [pads or ((weight.shape[0] - 1) // 2,) * 2] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] // weight.shape[2],
    )
    return out + p["b"].astype(x.dtype)


def dense(p: Params, x: jax.Array) -> jax.Array:
    """A linear layer, in the dtype of its input."""
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def layer_norm(p: Params, x: jax.Array, epsilon: float = 1e-5) -> jax.Array:
    """Layer normalization: float32 inside, the dtype of its input outside."""
    h = x.astype(jnp.float32)
    mean = h.mean(-1, keepdims=True)
    variance = jnp.square(h - mean).mean(-1, keepdims=True)
    return ((h - mean) * jax.lax.rsqrt(variance + epsilon) * p["scale"] + p["bias"]).astype(x.dtype)


def rms_norm(scale: jax.Array, x: jax.Array, dtype: Any) -> jax.Array:
    """Normalization by the root of the mean square: float32 inside, `dtype` outside."""
    h = x.astype(jnp.float32)
    return (h * jax.lax.rsqrt(jnp.square(h).mean(-1, keepdims=True) + 1e-6) * scale).astype(dtype)


def dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    """Dropout by eight random bits an element."""
    if not rate:
        return x
    kept = jax.random.bits(key, x.shape, jnp.uint8) < round((1 - rate) * 256)
    return jnp.where(kept, x / (1 - rate), 0).astype(x.dtype)


def heads_of(p: Params, x: jax.Array, heads: int) -> jax.Array:
    """Projected into the layout of the kernel, [batch, heads, length, width], without a transpose in between."""
    weights = p["w"].astype(x.dtype).reshape(x.shape[-1], heads, -1)
    return jnp.einsum("btd,dhk->bhtk", x, weights) + p["b"].astype(x.dtype).reshape(heads, 1, -1)


def joined(p: Params, heads: jax.Array) -> jax.Array:
    """Attention's output projection, from the layout of the kernel."""
    _, count, _, width = heads.shape
    weights = p["w"].astype(heads.dtype).reshape(count, width, -1)
    return jnp.einsum("bhtk,hkd->btd", heads, weights) + p["b"].astype(heads.dtype)


def cross_entropies(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Of each row; only the logits' narrow form is kept, every float32 value of them lives inside a fusion."""
    logits = logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, -1)
    hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1) == targets[..., None]
    return total - jnp.where(hit, logits, 0).sum(-1)


def gradients_of(loss: Loss, mesh: Mesh, tensors: int) -> Callable[..., tuple[jax.Array, Params]]:
    """The loss and its gradients, averaged over the cores of a mesh with the axis "data"; each has its part of the batch.

    Args:
        loss: of one core.
        mesh: the cores.
        tensors: how many a batch has.
    """

    def on_core(params: Params, *rest: jax.Array) -> tuple[jax.Array, Params]:
        *batch, key = rest
        key = jax.random.fold_in(key, jax.lax.axis_index("data"))
        return jax.lax.pmean(jax.value_and_grad(loss)(params, *batch, key), "data")

    specs = (EVERYWHERE, *[DATA] * tensors, EVERYWHERE)
    return jax.shard_map(on_core, mesh=mesh, in_specs=specs, out_specs=EVERYWHERE, check_vma=False)


def adamw_step(loss: Loss, mesh: Mesh, params: Params, batch: Sequence[jax.ShapeDtypeStruct]) -> tuple[Any, tuple[Any, ...]]:
    """The jitted, data-parallel training step under AdamW, and its arguments as shapes.

    Args:
        loss: of one core.
        mesh: the cores, with the axis "data".
        params: the parameters, as shapes.
        batch: the tensors of a core's batch, as shapes.
    """
    optimizer = optax.adamw(1e-3, weight_decay=0.01)
    parallel = gradients_of(loss, mesh, len(batch))

    def step(params: Params, moments: Any, *rest: jax.Array) -> Any:
        *tensors, key = rest
        key, used = jax.random.split(key)
        value, grads = parallel(params, *tensors, used)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, key, value

    whole, divided = NamedSharding(mesh, EVERYWHERE), NamedSharding(mesh, DATA)
    moments = jax.eval_shape(optimizer.init, params)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    every = [jax.ShapeDtypeStruct((t.shape[0] * mesh.size, *t.shape[1:]), t.dtype) for t in batch]
    arguments = (*(placed(t, whole) for t in (params, moments)), *placed(every, divided), placed(key, whole))
    return jax.jit(step, donate_argnums=(0, 1)), arguments


def placed(tree: Any, sharding: NamedSharding) -> Any:
    """The same shapes, with where they lie."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), tree)
