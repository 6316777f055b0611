"""Scaled dot-product attention as one op; which kernel computes it is decided when the program is lowered."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import torch

from ..lowering._context import current
from ._flash_attention import flash_attention, flash_supports
from ._jax_op import op_with_kernels
from ._keys import next_key
from ._plain_attention import Mask, plain_attention


def _gpu_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    draw: Mask,
    *,
    causal: bool,
    scale: float,
    dropout: float,
) -> jax.Array:
    """Attention by cuDNN where it can; JAX wants (batch, length, heads, features)."""
    if not _cudnn_supports(query, key, value, mask, draw, causal):
        return plain_attention(query, key, value, mask, draw, causal=causal, scale=scale, dropout=dropout)
    swapped = [jnp.swapaxes(x, 1, 2) for x in (query, key, value)]
    whole = None if mask is None else jnp.broadcast_to(mask, (*query.shape[:-1], key.shape[-2]))
    result = jax.nn.dot_product_attention(
        swapped[0], swapped[1], swapped[2], mask=whole, is_causal=causal, scale=scale, implementation="cudnn"
    )
    result = jnp.swapaxes(result, 1, 2)
    # cuDNN adds a large negative number, so a row that may look nowhere sees everything
    return result if whole is None else jnp.where(whole.any(-1, keepdims=True), result, 0)


def _cudnn_supports(query: jax.Array, key: jax.Array, value: jax.Array, mask: Mask, draw: Mask, causal: bool) -> bool:
    lengths = (query.shape[-2], key.shape[-2])
    return (
        query.ndim == key.ndim == value.ndim == 4
        and query.dtype in (jnp.bfloat16, jnp.float16)
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape == value.shape
        and query.shape[-3] % key.shape[-3] == 0
        and query.shape[-1] == key.shape[-1] <= 128
        and query.shape[-1] % 8 == 0
        and draw is None
        and (mask is None or (mask.dtype == jnp.bool_ and not causal and all(n % 2 == 0 for n in lengths)))
        and (not causal or lengths[0] == lengths[1])
    )


def _tpu_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: Mask,
    draw: Mask,
    *,
    causal: bool,
    scale: float,
    dropout: float,
) -> jax.Array:
    """Attention on TPU by a kernel that never forms the whole matrix of scores, where there is one."""
    mesh = current().mesh
    if not flash_supports(query, key, value, mask, mesh):
        return plain_attention(query, key, value, mask, draw, causal=causal, scale=scale, dropout=dropout)
    return flash_attention(query, key, value, mask, draw, causal=causal, scale=scale, dropout=dropout, mesh=mesh)


_attention = op_with_kernels(plain_attention, {"gpu": _gpu_attention, "tpu": _tpu_attention})


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """PyTorch's function of this name, as one op."""
    query, key, value, attn_mask = _autocast(query, key, value, attn_mask)
    _require_valid(query, key, value, attn_mask, dropout_p, enable_gqa)
    draw = next_key() if dropout_p > 0 else None
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    return _attention(query, key, value, attn_mask, draw, causal=bool(is_causal), scale=factor, dropout=float(dropout_p))


def _autocast(*tensors: torch.Tensor | None) -> Any:
    """Cast tensors as autocast casts the arguments of an op of its lower-precision list."""
    if not torch.is_autocast_enabled("cpu"):
        return tensors
    dtype = torch.get_autocast_dtype("cpu")
    narrow = (torch.float32, torch.float16, torch.bfloat16)
    return [t if t is None or t.dtype not in narrow else t.to(dtype) for t in tensors]


def _require_valid(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    grouped: bool,
) -> None:
    """Refuse what PyTorch refuses."""
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, torch.float32, query.dtype):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and query.dtype: {query.dtype} instead."
        )
    if not 0 <= dropout <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout}")
    if grouped and any(query.shape[-3] % x.shape[-3] for x in (key, value)):
        raise RuntimeError(
            "Number of heads in key and value must divide the number of heads in query: "
            f"query has {query.shape[-3]}, key {key.shape[-3]}, value {value.shape[-3]}."
        )
    if not grouped and any(x.ndim > 2 and query.ndim > 2 and _clash(x.shape[-3], query.shape[-3]) for x in (key, value)):
        raise RuntimeError(
            f"query has {query.shape[-3]} heads, key {key.shape[-3]} and value {value.shape[-3]}. "
            "Pass enable_gqa=True for grouped-query attention."
        )


def _clash(one: int, other: int) -> bool:
    return one != other and 1 not in (one, other)
