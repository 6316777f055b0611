"""Ops that TorchScript's code calls and PyTorch's Python does not, in other ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...utilities._torch_internals import OpOverload
from ..kernels import lstm_layer, lstm_layer_gradients

_aten = torch.ops.aten
_OF_POSITIONS, _OF_KEYS = 0, 1
"""Kinds of masks: bool[query, key], and bool[batch, key]; any other is bool[batch, heads, query, key]. True is left out."""


def rule_for_script_op(op: OpOverload) -> Callable[..., Any] | None:
    """The rule of one of these ops; None for any other."""
    rules: dict[OpOverload, Callable[..., Any]] = {
        # what a trace of TorchScript's records; behind the nine arguments are those that choose a kernel
        _aten._convolution.default: lambda *args: _aten.convolution.default(*args[:9]),
        # what C++ picks on a CPU, below which PyTorch's Python stays: the forward of attention has a rule of PyTorch's
        _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_gradients,
        _aten.mkldnn_rnn_layer.default: recurrent_layer,
        _aten.mkldnn_rnn_layer_backward.default: recurrent_layer_gradients,
        # layers as one op, for inference on CPUs and GPUs
        _aten._native_multi_head_attention.default: multi_head_attention,
        _aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }
    return rules.get(op)


def attention_gradients(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """Gradients of query, key and value, float[batch, heads, positions, size], from probabilities that are computed anew.

    With P = softmax(S): dS = P * (dP - sum(dP * P)), the sum being that of grad_out * out (Dao et al. 2022, FlashAttention,
    appendix B.2).
    """
    del logsumexp
    if dropout_p or query.shape[1] != key.shape[1]:
        return NotImplemented
    factor: float = query.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g, o = (t.float() if t.dtype in (torch.bfloat16, torch.float16) else t for t in (query, key, value, grad_out, out))
    scores = q @ k.mT * factor
    if is_causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), float("-inf"))
    if attn_mask is not None:
        is_choice = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if is_choice else scores + attn_mask
    weights = scores.softmax(-1)
    weights = weights.masked_fill(scores.isneginf().all(-1, keepdim=True), 0.0)  # a row that looks at nothing
    of_scores = weights * (g @ v.mT - (g * o).sum(-1, keepdim=True)) * factor
    gradients = of_scores @ k, of_scores.mT @ q, weights.mT @ g
    return tuple(one.to(query.dtype) for one in gradients)


_LSTM = 2
"""Number of that kind of network for oneDNN, the only one for which PyTorch calls it."""


def recurrent_layer(
    x: torch.Tensor,
    from_input: torch.Tensor,
    from_hidden: torch.Tensor,
    bias: torch.Tensor,
    hidden_bias: torch.Tensor,
    hidden: torch.Tensor,
    memory: torch.Tensor,
    reverse: bool,
    batch_sizes: list[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    *settings: object,
) -> Any:
    """One layer of an LSTM in one direction: results, hidden state, memory, and an empty tensor.

    Args:
        x: float[time, batch, features].
        from_input: float[4 * hidden, features]; the other weights, float[4 * hidden, hidden], and two biases.
        hidden: the state at the beginning, float[1, batch, hidden], and the memory.
        reverse: whether it runs backward in time.
        batch_sizes: of packed sequences, which are none of the steps' here.
        mode: the kind of network.
        hidden_size: as of `hidden`.
        num_layers: one.
        has_biases: whether there are biases, in whose place zeros of some shape stand.
        settings: what was decided before.
    """
    del hidden_size, num_layers, settings
    if batch_sizes or mode != _LSTM:
        return NotImplemented
    state = tuple(one.reshape(1, *one.shape[-2:]) for one in (hidden, memory))
    weights = (from_input, from_hidden, bias, hidden_bias) if has_biases else (from_input, from_hidden)
    y, *final = lstm_layer(x, state, weights, reverse=reverse)
    return y, *(one.reshape(hidden.shape) for one in final), x.new_empty(0, dtype=torch.uint8)


def recurrent_layer_gradients(
    x: torch.Tensor,
    from_input: torch.Tensor,
    from_hidden: torch.Tensor,
    bias: torch.Tensor,
    hidden_bias: torch.Tensor,
    hidden: torch.Tensor,
    memory: torch.Tensor,
    y: torch.Tensor,
    last_hidden: torch.Tensor,
    last_memory: torch.Tensor,
    *given: Any,
) -> Any:
    """Its gradients: of x, the weights, the biases, the hidden state and the memory.

    `given` begins with those of the results, whether it runs backward, the kind of network, two sizes, and whether there are
    biases.
    """
    *cotangents, reverse, mode, _, _, has_biases = given[:8]
    if mode != _LSTM:
        return NotImplemented
    results = [y, *(one.reshape(1, *one.shape[-2:]) for one in (last_hidden, last_memory))]
    cotangents = [torch.zeros_like(r) if g is None else g.reshape(r.shape) for g, r in zip(cotangents, results, strict=True)]
    state = (hidden.reshape(results[1].shape), memory.reshape(results[2].shape))
    weights = (from_input, from_hidden, bias, hidden_bias) if has_biases else (from_input, from_hidden)
    of_x, of_state, of_weights = lstm_layer_gradients(tuple(cotangents), x, state, weights, reverse=reverse)
    of_biases = () if has_biases else (torch.zeros_like(bias), torch.zeros_like(hidden_bias))
    return of_x, *of_weights, *of_biases, *(one.reshape(hidden.shape) for one in of_state)


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
