"""Attention on TPU without the matrix of scores: JAX's splash kernel, on every core for its part of the batch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh

from ...sharding import batch_spec

Shaped = jax.Array | jax.ShapeDtypeStruct
"""An array, or what is known of one before the program is traced."""

LANES = 128
"""Lengths must be multiples of a register's width."""

LARGEST_BLOCK = 1024
"""Queries and keys of one tile: its scores take 4 MB of a core's vector memory, in float32."""

LARGEST_ROW = 512
"""Bytes of a query up to which tiles of that size fit into the vector memory; found by compiling for v5e."""

LARGEST_FEATURES = 256
"""Wider heads were not tried."""

WITHOUT_KERNELS = ("TPU v2", "TPU v3")
"""Chips that Pallas's TPU compiler does not know, as JAX calls them."""


def splash_supports(query: Shaped, key: Shaped, value: Shaped, mesh: Mesh | None) -> bool:
    """Whether the kernel computes this attention, given that it has neither mask nor dropout."""
    chip = "" if mesh is None else mesh.devices.flat[0].device_kind
    return (
        chip not in WITHOUT_KERNELS
        and query.ndim == key.ndim == value.ndim == 4
        and query.dtype in (jnp.bfloat16, jnp.float32)
        and query.shape[0] == key.shape[0]
        and key.shape == value.shape
        and query.shape[1] % key.shape[1] == 0
        and query.shape[2] % LANES == 0
        and key.shape[2] % LANES == 0
        and query.shape[3] == key.shape[3] <= LARGEST_FEATURES
    )


def splash_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    causal: bool,
    scale: float,
    mesh: Mesh | None,
    interpret: bool = False,
) -> jax.Array:
    """Attention without a mask or dropout.

    Args:
        query: (batch, heads, length, features), bfloat16 or float32.
        key: (batch, heads or a divisor, other length, features).
        value: of the key's shape.
        causal: whether position i sees the positions up to i only.
        scale: what scores are multiplied by.
        mesh: the cores that share the batch; None for one.
        interpret: run the kernel without a TPU.
    """
    lengths = (query.shape[2], key.shape[2])
    kernel = functools.partial(_on_one_core, heads=query.shape[1], lengths=lengths, causal=causal, interpret=interpret)
    # the kernel knows no scale; a power of two, as for 64 features, changes no digit of the query
    scaled = query * jnp.asarray(scale, query.dtype)
    return narrow(on_each_core(kernel, mesh, query.shape[0]))(scaled, key, value)


def on_each_core(function: Callable[..., Any], mesh: Mesh | None, batch: int) -> Callable[..., Any]:
    """`function` on every core's part of arrays whose first dimension is the batch.

    XLA cannot split a kernel: left alone, every core would gather the batch and compute all of it.
    """
    if mesh is None or mesh.size == 1:
        return function
    spec = batch_spec((batch,), mesh)
    return jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)


def narrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` and its derivative traced without 64-bit types, which kernels cannot have.

    Programs are traced with them switched on, and a kernel's indices would become int64.
    """

    @jax.custom_vjp
    def call(*arrays: Any) -> Any:
        with jax.enable_x64(False):
            return function(*arrays)

    def forward(*arrays: Any) -> tuple[Any, Any]:
        with jax.enable_x64(False):
            return jax.vjp(function, *arrays)

    def backward(pull: Callable[..., Any], cotangent: object) -> Any:
        with jax.enable_x64(False):
            return pull(cotangent)

    call.defvjp(forward, backward)
    return call


def _on_one_core(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    heads: int,
    lengths: tuple[int, int],
    causal: bool,
    interpret: bool,
) -> jax.Array:
    mask = masks.CausalMask(lengths) if causal else masks.FullMask(lengths)
    largest = LARGEST_BLOCK if query.shape[-1] * query.dtype.itemsize <= LARGEST_ROW else LARGEST_BLOCK // 2
    rows, columns = (_block(n, largest) for n in lengths)
    blocks = splash.BlockSizes(
        block_q=rows, block_kv=columns, block_kv_compute=columns, block_q_dkv=rows, block_kv_dkv=columns,
        block_kv_dkv_compute=columns, use_fused_bwd_kernel=True,
    )  # fmt: skip
    kernel: Any = splash.make_splash_mha_single_device(
        masks.MultiHeadMask([mask] * heads), block_sizes=blocks, interpret=interpret
    )
    return jax.vmap(kernel)(query, key, value)


def _block(length: int, largest: int) -> int:
    """The largest power of two, up to `largest`, that divides a length."""
    return min(length & -length, largest)
