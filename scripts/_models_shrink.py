"""The smallest sensible configuration of a transformers model: the same names mean the same nearly everywhere."""

from __future__ import annotations

import dataclasses
from typing import Any

import transformers

VOCABULARY = 99
PATCH, SIDE = 8, 32

_WIDTH, _INNER, _LAYERS, _HEADS = 32, 64, 1, 4
_NUMBERS: dict[str, int] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embedding_size", "decoder_hidden_size"), _WIDTH),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "ffn_dim", "d_inner"), _INNER),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "hidden_dim", "ffn_hidden_size"), _INNER),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), _LAYERS),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers", "decoder_num_hidden_layers"), _LAYERS),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"), _HEADS),
    **dict.fromkeys(("decoder_attention_heads", "num_encoder_attention_heads", "num_decoder_attention_heads"), _HEADS),
    "decoder_num_attention_heads": _HEADS,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "d_kv": 8,
    "d_head": 8,
    "global_head_dim": 8,
    "decoder_intermediate_size": _INNER,
    "projection_dim": _WIDTH,
    "embed_dim": 16,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "n_ctx": 64,
    "max_seq_len": 64,
    "rotary_dim": 4,
    "window_size": 4,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "image_size": SIDE,
    "patch_size": PATCH,
    "vocab_size": VOCABULARY,
    "num_labels": 3,
    "classifier_proj_size": 16,
    "sliding_window": 6,
    "max_window_layers": 1,
    "num_codevectors_per_group": 8,
    "codevector_dim": 16,
    "proj_codevector_dim": 16,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "fpn_feature_size": _WIDTH,
    "mask_feature_size": _WIDTH,
    "feature_size": _WIDTH,
    "dim_feedforward": _INNER,
    "encoder_feedforward_dim": _INNER,
    "num_queries": 6,
    "fusion_hidden_size": 16,
    "auxiliary_channels": 16,
    "aspp_out_channels": 16,
    "tubelet_size": 2,
    "num_frames": 4,
}
_LISTS: dict[str, tuple[Any, ...]] = {
    "depths": (2, 1, 1, 1, 1, 1),
    "hidden_sizes": (16, 32, 32, 64),
    "num_heads": (1, 2, 4, 8, 8, 8),
    "num_attention_heads": (1, 2, 4, 8),
    "neck_hidden_sizes": (8, 8, 16, 16, 32, 32, 64),
    "conv_dim": (16,) * 16,
    "image_size": (SIDE, SIDE),
    "pool_scales": (1, 2, 2, 2),
}
_OFF = ("apply_spec_augment", "use_cache")
_ZERO = ("drop", "mask_time_prob", "mask_feature_prob", "jitter", "min_masks", "label_noise_ratio", "box_noise_scale")
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}


def small(name: str, **given: Any) -> transformers.PreTrainedConfig:
    """A small configuration without anything that is random while training.

    Args:
        name: of the configuration class.
        given: what it is to have all the same.
    """
    return shrunk(getattr(transformers, name), **given)


def shrunk(kind: type[transformers.PreTrainedConfig], **given: Any) -> transformers.PreTrainedConfig:
    """See `small`."""
    values = {f.name: value for f in dataclasses.fields(kind) if (value := _value(f.name, _default(f))) is not None}
    named = {"num_labels": 3} if "num_labels" not in given and kind not in _WITHOUT_LABELS else {}
    return kind(**{**values, **named, **given})


_WITHOUT_LABELS: set[type] = set()


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default is not dataclasses.MISSING else None


def _value(name: str, default: Any) -> Any:
    """What a field is to be; None where its own value is right."""
    if name in _OFF:
        return False
    if name in _TOKENS:
        return _TOKENS[name] if default is not None or name == "pad_token_id" else None
    if name.endswith(("_token_id", "_token_index")) and isinstance(default, int) and default >= VOCABULARY:
        return 3
    if any(word in name for word in _ZERO) and isinstance(default, int | float) and not isinstance(default, bool):
        return type(default)(0)
    if isinstance(default, list | tuple) and name in _LISTS:
        return list(_LISTS[name][: len(default)])
    if name in _NUMBERS and isinstance(default, int | None) and not isinstance(default, bool):
        return _NUMBERS[name] if default is not None or name in ("head_dim",) else None
    return None
