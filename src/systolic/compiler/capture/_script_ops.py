"""Ops that TorchScript's code calls and PyTorch's Python does not, in other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...utilities._torch_internals import OpOverload

_OF_POSITIONS, _OF_KEYS = 0, 1
"""Kinds of masks: bool[query, key], and bool[batch, key]; any other is bool[batch, heads, query, key]. True is left out."""


def rule_for_script_op(op: OpOverload) -> Callable[..., Any] | None:
    """The rule of one of these ops; None for any other."""
    rules: dict[OpOverload, Callable[..., Any]] = {
        # what a trace of TorchScript's records; behind the nine arguments are those that choose a kernel
        torch.ops.aten._convolution.default: lambda *args: torch.ops.aten.convolution.default(*args[:9]),
        # layers as one op, for inference on CPUs and GPUs
        torch.ops.aten._native_multi_head_attention.default: multi_head_attention,
        torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }
    return rules.get(op)


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of `nn.MultiheadAttention`, and its weights, which are empty where nobody wants them.

    Args:
        query: float[batch, positions, embed_dim]; key and value likewise.
        embed_dim: how many numbers a position has.
        num_head: how many heads share them.
        qkv_weight: float[3 * embed_dim, embed_dim]; its bias, and those of the projection behind it.
        mask: what a head does not look at.
        need_weights: whether its probabilities are wanted.
        average_attn_weights: over the heads.
        mask_type: which kind of mask it is.
    """
    parts = zip((query, key, value), qkv_weight.chunk(3), qkv_bias.chunk(3), strict=True)
    q, k, v = (F.linear(x, w, b).unflatten(-1, (num_head, -1)).transpose(1, 2) for x, w, b in parts)
    scores = q @ k.transpose(-1, -2) * (embed_dim // num_head) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(_of_heads(mask, mask_type), float("-inf"))
    weights = scores.softmax(-1)
    out = F.linear((weights @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return out, out.new_empty(0)
    return out, weights.mean(1) if average_attn_weights else weights


def _of_heads(mask: torch.Tensor, kind: int | None) -> torch.Tensor:
    """A mask as bool[batch or 1, heads or 1, query or 1, key]."""
    mask = mask.bool()
    if kind == _OF_POSITIONS:
        return mask[None, None]
    return mask[:, None, None] if kind == _OF_KEYS else mask


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """A layer of `nn.TransformerEncoder` in evaluation: float[batch, positions, embed_dim], of `src` of that shape."""

    def attended(x: torch.Tensor) -> torch.Tensor:
        weights = qkv_weight, qkv_bias, proj_weight, proj_bias
        return multi_head_attention(x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type)[0]

    def fed_forward(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else F.relu(hidden), ffn_weight_2, ffn_bias_2)

    def first(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_1, norm_bias_1, eps)

    def second(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, [embed_dim], norm_weight_2, norm_bias_2, eps)

    if norm_first:
        between = src + attended(first(src))
        return between + fed_forward(second(between))
    between = first(src + attended(src))
    return second(between + fed_forward(between))
