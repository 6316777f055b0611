"""Rows of the model sweep: models of text."""

from __future__ import annotations

import torch
from _models_batches import (
    FIRST_WORD,
    answers,
    causal,
    causal_long,
    masked,
    masked_long,
    on_page,
    one_label,
    regression,
    token_labels,
    translated,
    unpadded,
    words,
)
from _models_hub import hub
from _models_row import Batch
from _models_shrink import small
from torch import nn

ENCODERS, DECODERS, PAIRS, VARIANTS = "text encoders", "text decoders", "text to text", "variants"

_REFORMER = {
    "attn_layers": ["local", "local"],
    "axial_pos_shape": [4, 8],
    "axial_pos_embds_dim": [16, 16],
    "feed_forward_size": 64,
    "local_attn_chunk_length": 8,
    "attention_head_size": 8,
}

hub(
    ENCODERS,
    masked,
    "AlbertForMaskedLM",
    "BertForMaskedLM",
    "DebertaForMaskedLM",
    "DistilBertForMaskedLM",
    "ElectraForMaskedLM",
    "FNetForMaskedLM",
    "IBertForMaskedLM",
    "LayoutLMForMaskedLM",
    "MPNetForMaskedLM",
    "RoFormerForMaskedLM",
    "RobertaForMaskedLM",
    "SqueezeBertForMaskedLM",
    "XLMRobertaForMaskedLM",
    "YosoForMaskedLM",
)
hub(ENCODERS, masked, "DebertaV2ForMaskedLM", given={"relative_attention": True, "pos_att_type": ["p2c", "c2p"]})
hub(ENCODERS, masked, "EsmForMaskedLM", given={"vocab_size": 99, "mask_token_id": 4})
hub(ENCODERS, masked, "ConvBertForMaskedLM", given={"conv_kernel_size": 3})
hub(ENCODERS, masked, "MobileBertForMaskedLM", given={"intra_bottleneck_size": 16})
hub(
    ENCODERS,
    masked,
    "NystromformerForMaskedLM",
    given={"num_landmarks": 12, "segment_means_seq_len": 12, "conv_kernel_size": 3},
)
hub(ENCODERS, masked, "ModernBertForMaskedLM", given={"cls_token_id": 1, "sep_token_id": 2, "local_attention": 4})
hub(ENCODERS, masked, "FunnelForMaskedLM", given={"block_sizes": [1, 1, 1], "num_decoder_layers": 1})
hub(ENCODERS, masked_long, "LongformerForMaskedLM", given={"attention_window": 8})
hub(ENCODERS, masked_long, "BigBirdForMaskedLM", given={"attention_type": "original_full"})
hub(
    ENCODERS,
    masked_long,
    "BigBirdForMaskedLM",
    variant="block sparse",
    given={"block_size": 2, "num_random_blocks": 1, "max_position_embeddings": 64},
)
hub(ENCODERS, masked, "XLMWithLMHeadModel", "FlaubertWithLMHeadModel", given={"use_lang_emb": False})
hub(ENCODERS, masked, "XmodForMaskedLM", given={"default_language": "en_XX"})
hub(ENCODERS, masked, "RoCBertForMaskedLM", given={"pronunciation_vocab_size": 99, "shape_vocab_size": 99})
hub(
    ENCODERS,
    masked_long,
    "PerceiverForMaskedLM",
    given={
        "num_latents": 8,
        "d_latents": 32,
        "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4,
        "num_cross_attention_heads": 4,
        "qk_channels": 32,
        "v_channels": 32,
        "max_position_embeddings": 32,
    },
)
hub(ENCODERS, on_page, "LayoutLMForTokenClassification")
hub(ENCODERS, on_page, "BrosForTokenClassification", given={"hidden_size": 64})
hub(ENCODERS, on_page, "LiltForTokenClassification", given={"hidden_size": 48, "channel_shrink_ratio": 4})
hub(ENCODERS, one_label, "BertForSequenceClassification", "XLNetForSequenceClassification")
hub(ENCODERS, one_label, "CanineForSequenceClassification", given={"local_transformer_stride": 4, "downsampling_rate": 2})
hub(ENCODERS, token_labels, "RobertaForTokenClassification", "ElectraForTokenClassification")
hub(ENCODERS, answers, "DistilBertForQuestionAnswering", "BertForQuestionAnswering", given={"num_labels": 2})
hub(ENCODERS, regression, "RobertaForSequenceClassification", given={"num_labels": 1}, variant="regression")
hub(ENCODERS, one_label, "TapasForSequenceClassification", given={"max_num_rows": 8, "max_num_columns": 8})


def _reformed(model: nn.Module) -> Batch:
    del model
    return {**masked_long(nn.Identity())}


hub(
    ENCODERS,
    _reformed,
    "ReformerForMaskedLM",
    given=_REFORMER | {"is_decoder": False},
)

hub(
    DECODERS,
    causal,
    "GPT2LMHeadModel",
    "MistralForCausalLM",
    "Qwen3ForCausalLM",
    "GemmaForCausalLM",
    "PhiForCausalLM",
    "Phi3ForCausalLM",
    "FalconForCausalLM",
    "BloomForCausalLM",
    "OlmoForCausalLM",
    "GraniteForCausalLM",
    "CohereForCausalLM",
    "StableLmForCausalLM",
    "Starcoder2ForCausalLM",
    "GPTNeoXForCausalLM",
    "GPTJForCausalLM",
    "CodeGenForCausalLM",
    "GPTBigCodeForCausalLM",
    "MptForCausalLM",
    "PersimmonForCausalLM",
    "BioGptForCausalLM",
    "CTRLLMHeadModel",
    "XGLMForCausalLM",
    "DiffLlamaForCausalLM",
    "Ernie4_5ForCausalLM",
    "GlmForCausalLM",
    "Glm4ForCausalLM",
    "HeliumForCausalLM",
    "Olmo2ForCausalLM",
    "SmolLM3ForCausalLM",
)
# whose layers differ from one another
hub(
    DECODERS,
    causal,
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Gemma2ForCausalLM",
    "Gemma3ForCausalLM",
    "Cohere2ForCausalLM",
    given={"num_hidden_layers": 2},
)
hub(DECODERS, causal, "OPTForCausalLM", given={"word_embed_proj_dim": 32})
hub(DECODERS, causal, "GPTNeoForCausalLM", given={"num_layers": 2, "attention_types": [[["global", "local"], 1]]})
hub(DECODERS, causal, "OpenAIGPTLMHeadModel")
hub(DECODERS, causal, "NemotronForCausalLM", given={"num_key_value_heads": 2})
hub(DECODERS, causal, "FalconForCausalLM", given={"alibi": True}, variant="alibi")
hub(
    DECODERS,
    causal,
    "BitNetForCausalLM",
    "ApertusForCausalLM",
    "Exaone4ForCausalLM",
    "Olmo3ForCausalLM",
    given={"num_hidden_layers": 2},
)
hub(
    DECODERS,
    causal,
    "Lfm2ForCausalLM",
    given={"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
)
hub(DECODERS, causal, "MixtralForCausalLM", "PhimoeForCausalLM", "GraniteMoeForCausalLM", "JetMoeForCausalLM")
hub(DECODERS, causal, "MixtralForCausalLM", given={"output_router_logits": True}, variant="router losses")
hub(DECODERS, causal, "Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "OlmoeForCausalLM", "GptOssForCausalLM")
hub(
    DECODERS,
    causal,
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    given={
        "kv_lora_rank": 16,
        "q_lora_rank": 16,
        "qk_rope_head_dim": 8,
        "qk_nope_head_dim": 8,
        "v_head_dim": 8,
        "num_key_value_heads": 4,
        "n_group": 2,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 2,
    },
)
hub(DECODERS, causal, "Llama4ForCausalLM", given={"intermediate_size_mlp": 64, "attention_chunk_size": 8})
hub(
    DECODERS,
    causal,
    "DbrxForCausalLM",
    given={
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
    },
)
hub(DECODERS, causal, "MambaForCausalLM", "FalconMambaForCausalLM", given={"state_size": 4})
hub(DECODERS, causal_long, "Mamba2ForCausalLM", given={"num_heads": 8, "n_groups": 2, "state_size": 8, "chunk_size": 8})
hub(
    DECODERS,
    causal,
    "JambaForCausalLM",
    given={
        "num_hidden_layers": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "use_mamba_kernels": False,
        "mamba_dt_rank": 4,
    },
)
hub(
    DECODERS,
    causal_long,
    "BambaForCausalLM",
    given={
        "num_hidden_layers": 2,
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
    },
)
hub(DECODERS, causal, "RecurrentGemmaForCausalLM", given={"num_hidden_layers": 3, "attention_window_size": 8, "lru_width": 32})
hub(DECODERS, unpadded, "RwkvForCausalLM", given={"num_hidden_layers": 2})
hub(
    DECODERS,
    causal_long,
    "ReformerModelWithLMHead",
    given=_REFORMER | {"is_decoder": True},
)
hub(DECODERS, causal, "XLNetLMHeadModel")
hub(
    DECODERS,
    causal_long,
    "Qwen3NextForCausalLM",
    given={
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "num_hidden_layers": 2,
        "layer_types": ["linear_attention", "full_attention"],
    },
)
hub(DECODERS, one_label, "LlamaForSequenceClassification", "GPT2ForSequenceClassification", given={"pad_token_id": 0})

_START = {"decoder_start_token_id": 0}
hub(
    PAIRS,
    translated,
    "BartForConditionalGeneration",
    "BlenderbotForConditionalGeneration",
    "BlenderbotSmallForConditionalGeneration",
    "M2M100ForConditionalGeneration",
    "MBartForConditionalGeneration",
    "MarianMTModel",
    "MT5ForConditionalGeneration",
    "MvpForConditionalGeneration",
    "PLBartForConditionalGeneration",
    "PegasusForConditionalGeneration",
    "ProphetNetForConditionalGeneration",
    "UMT5ForConditionalGeneration",
)
hub(PAIRS, translated, "T5ForConditionalGeneration", given=_START)
hub(
    PAIRS,
    translated,
    "SwitchTransformersForConditionalGeneration",
    given={**_START, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
)
hub(
    PAIRS,
    translated,
    "NllbMoeForConditionalGeneration",
    given={"encoder_sparse_step": 1, "decoder_sparse_step": 1, "expert_capacity": 16},
)
hub(PAIRS, translated, "LongT5ForConditionalGeneration", given={**_START, "local_radius": 5, "global_block_size": 4})
hub(
    PAIRS,
    translated,
    "LongT5ForConditionalGeneration",
    variant="transient global",
    given={**_START, "local_radius": 5, "global_block_size": 4, "encoder_attention_type": "transient-global"},
)
hub(PAIRS, translated, "PegasusXForConditionalGeneration", given={"block_size": 4, "num_global_tokens": 2})
hub(
    PAIRS,
    translated,
    "LEDForConditionalGeneration",
    given={
        "attention_window": 4,
        "max_encoder_position_embeddings": 64,
        "max_decoder_position_embeddings": 64,
    },
)
hub(PAIRS, translated, "BigBirdPegasusForConditionalGeneration", given={"attention_type": "original_full"})


def with_decoder(model: nn.Module) -> Batch:
    """The decoder's tokens are given."""
    batch = translated(model)
    return {**batch, "decoder_input_ids": batch["labels"].clamp(min=0)}


hub(PAIRS, with_decoder, "FSMTForConditionalGeneration", given={"src_vocab_size": 99, "tgt_vocab_size": 99})
hub(
    PAIRS,
    translated,
    "EncoderDecoderModel",
    given=lambda: {
        "encoder": small("BertConfig").to_dict(),
        "decoder": small("BertConfig", is_decoder=True, add_cross_attention=True).to_dict(),
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
)


def ending(model: nn.Module) -> Batch:
    """A text that ends with the token by which BART's classifier finds the end."""
    batch = one_label(model)
    ends = batch["attention_mask"].sum(1) - 1
    ids = batch["input_ids"].clone()
    ids[torch.arange(len(ids)), ends] = 2
    return {**batch, "input_ids": ids}


hub(PAIRS, ending, "BartForSequenceClassification")

hub(VARIANTS, causal, "GPT2LMHeadModel", "LlamaForCausalLM", given={"output_hidden_states": True}, variant="hidden states")
hub(
    VARIANTS,
    causal,
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    variant="attention weights",
    given={"output_attentions": True, "attn_implementation": "eager"},
)
hub(VARIANTS, masked, "BertForMaskedLM", given={"attn_implementation": "eager"}, variant="eager attention")
hub(VARIANTS, causal, "LlamaForCausalLM", given={"use_cache": True}, variant="cache")
hub(VARIANTS, translated, "T5ForConditionalGeneration", given={**_START, "use_cache": True}, variant="cache")
hub(VARIANTS, causal, "LlamaForCausalLM", given={"tie_word_embeddings": True}, variant="tied")
hub(
    VARIANTS,
    causal,
    "LlamaForCausalLM",
    variant="yarn",
    given={
        "rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0, "original_max_position_embeddings": 16},
    },
)
hub(
    VARIANTS,
    causal,
    "LlamaForCausalLM",
    variant="dynamic rope",
    given={
        "rope_parameters": {
            "rope_type": "dynamic",
            "factor": 4.0,
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 8,
        },
    },
)


def checkpointed(model: nn.Module) -> nn.Module:
    """The model with what its layers computed forgotten and computed again for the gradient."""
    model.gradient_checkpointing_enable()
    return model


hub(
    VARIANTS,
    causal,
    "GPT2LMHeadModel",
    "LlamaForCausalLM",
    "MixtralForCausalLM",
    variant="gradient checkpointing",
    prepare=checkpointed,
)
hub(VARIANTS, masked, "BertForMaskedLM", variant="gradient checkpointing", prepare=checkpointed)
hub(VARIANTS, translated, "T5ForConditionalGeneration", given=_START, variant="gradient checkpointing", prepare=checkpointed)


def frozen(model: nn.Module) -> nn.Module:
    """The model with its embeddings held."""
    model.get_input_embeddings().requires_grad_(False)
    return model


hub(VARIANTS, masked, "BertForMaskedLM", variant="frozen embeddings", prepare=frozen)


def packed(model: nn.Module) -> Batch:
    """Two texts in each row, told apart by their positions."""
    del model
    ids = words()
    return {"input_ids": ids, "labels": ids, "position_ids": torch.cat([torch.arange(7), torch.arange(5)]).expand(len(ids), -1)}


hub(VARIANTS, packed, "LlamaForCausalLM", variant="packed texts")


def left_padded(model: nn.Module) -> Batch:
    """Padding in front, as for generation."""
    return {name: value.flip(1) for name, value in causal(model).items()}


hub(VARIANTS, left_padded, "LlamaForCausalLM", "GPT2LMHeadModel", variant="left padding")


def embedded(model: nn.Module) -> Batch:
    """Embeddings in place of tokens."""
    return {"inputs_embeds": torch.randn(4, 12, model.config.hidden_size), "labels": torch.randint(FIRST_WORD, 99, (4, 12))}


hub(VARIANTS, embedded, "LlamaForCausalLM", variant="embeddings")
