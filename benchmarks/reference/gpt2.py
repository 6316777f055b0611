"""GPT-2 124M in JAX and optax, as one would write it for TPU: bfloat16 compute, splash attention, `rbg` keys, bfloat16 logits.

Data parallel with `shard_map`: every core computes its part of the batch with a key of its own, gradients are averaged.
Attention has no dropout: JAX's TPU kernels have none. Embeddings, attention outputs and feed-forward outputs have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Params = Any


@dataclass(frozen=True)
class Sizes:
    """GPT-2 124M with a batch per core."""

    layers: int = 12
    dim: int = 768
    heads: int = 12
    length: int = 1024
    vocabulary: int = 50257
    batch: int = 8
    dropout: float = 0.1


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes."""
    d = sizes.dim

    def dense(i: int, o: int) -> Params:
        return {"w": _float32(i, o), "b": _float32(o)}

    def norm() -> Params:
        return {"scale": _float32(d), "bias": _float32(d)}

    block = {
        "n1": norm(),
        "qkv": [dense(d, d)] * 3,
        "out": dense(d, d),
        "n2": norm(),
        "up": dense(d, 4 * d),
        "down": dense(4 * d, d),
    }
    return {
        "tokens": _float32(sizes.vocabulary, d),
        "positions": _float32(sizes.length, d),
        "blocks": [block] * sizes.layers,
        "norm": norm(),
    }


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _dense(p: Params, x: jax.Array) -> jax.Array:
    return x @ p["w"].astype(jnp.bfloat16) + p["b"].astype(jnp.bfloat16)


def _norm(p: Params, x: jax.Array) -> jax.Array:
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    variance = jnp.square(x - mean).mean(-1, keepdims=True)
    return ((x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]).astype(jnp.bfloat16)


def _dropout(x: jax.Array, key: jax.Array, rate: float) -> jax.Array:
    kept = jax.random.bits(key, x.shape, jnp.uint8) < round((1 - rate) * 256)
    return jnp.where(kept, x / (1 - rate), 0).astype(x.dtype)


def _attend(p: Params, x: jax.Array, sizes: Sizes) -> jax.Array:
    batch, length, dim = x.shape
    heads, width = sizes.heads, dim // sizes.heads
    block = min(1024, length)
    blocks = splash.BlockSizes(
        block_q=block, block_kv=block, block_kv_compute=block, block_q_dkv=block, block_kv_dkv=block,
        block_kv_dkv_compute=block, use_fused_bwd_kernel=True,
    )  # fmt: skip
    mask = masks.MultiHeadMask([masks.CausalMask((length, length))] * heads)
    kernel = splash.make_splash_mha_single_device(mask, block_sizes=blocks)
    query, key, value = (_heads(p["qkv"][i], x, heads) for i in range(3))
    out = jax.vmap(kernel)(query * jnp.bfloat16(width**-0.5), key, value)
    weights = p["out"]["w"].astype(jnp.bfloat16).reshape(heads, width, dim)
    return jnp.einsum("bhtk,hkd->btd", out, weights) + p["out"]["b"].astype(jnp.bfloat16)


def _heads(p: Params, x: jax.Array, heads: int) -> jax.Array:
    """Projected into the layout of the kernel, [batch, heads, length, width], without a transpose in between."""
    weights = p["w"].astype(jnp.bfloat16).reshape(x.shape[-1], heads, -1)
    return jnp.einsum("btd,dhk->bhtk", x, weights) + p["b"].astype(jnp.bfloat16).reshape(heads, 1, -1)


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the next tokens."""
    keys = iter(jax.random.split(key, 2 * sizes.layers + 1))
    h = params["tokens"].astype(jnp.bfloat16)[tokens] + params["positions"].astype(jnp.bfloat16)
    h = _dropout(h, next(keys), sizes.dropout)
    for p in params["blocks"]:
        h = h + _dropout(_attend(p, _norm(p["n1"], h), sizes), next(keys), sizes.dropout)
        up = jax.nn.gelu(_dense(p["up"], _norm(p["n2"], h)), approximate=True)
        h = h + _dropout(_dense(p["down"], up), next(keys), sizes.dropout)
    h = _norm(params["norm"], h).reshape(-1, sizes.dim)
    logits = h @ params["tokens"].astype(jnp.bfloat16).T
    return _cross_entropy(logits, targets.reshape(-1))


def _cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Only the bfloat16 logits are kept; every float32 value of them lives inside a fusion."""
    logits = logits.astype(jnp.float32)
    total = jax.nn.logsumexp(logits, -1)
    hit = jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == targets[:, None]
    return (total - jnp.where(hit, logits, 0).sum(-1)).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    optimizer = optax.adamw(1e-3, weight_decay=0.01)
    data, everywhere = PartitionSpec("data"), PartitionSpec()

    def on_core(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array) -> tuple[jax.Array, Params]:
        key = jax.random.fold_in(key, jax.lax.axis_index("data"))
        found = jax.value_and_grad(loss_of)(params, tokens, targets, key, sizes)
        return jax.lax.pmean(found, "data")

    parallel = jax.shard_map(
        on_core, mesh=mesh, in_specs=(everywhere, data, data, everywhere), out_specs=everywhere, check_vma=False
    )

    def step(params: Params, moments: Any, tokens: jax.Array, targets: jax.Array, key: jax.Array) -> Any:
        key, used = jax.random.split(key)
        loss, grads = parallel(params, tokens, targets, used)
        updates, moments = optimizer.update(grads, moments, params)
        return optax.apply_updates(params, updates), moments, key, loss

    params = shapes(sizes)
    moments = jax.eval_shape(optimizer.init, params)
    key = jax.eval_shape(lambda: jax.random.key(0, impl="rbg"))
    batch = jax.ShapeDtypeStruct((sizes.batch * mesh.size, sizes.length), jnp.int32)

    def placed(tree: Any, spec: PartitionSpec) -> Any:
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding), tree)

    arguments = (
        *(placed(t, everywhere) for t in (params, moments)),
        placed(batch, data),
        placed(batch, data),
        placed(key, everywhere),
    )
    return jax.jit(step, donate_argnums=(0, 1)), arguments
