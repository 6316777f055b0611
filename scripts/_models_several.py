"""Rows of the model sweep: models of several kinds of data."""

from __future__ import annotations

import torch
from _models_batches import BATCH, LABELS, boxes, causal, padding_mask, pixels, text, words
from _models_hub import hub
from _models_row import Batch
from _models_shrink import SIDE, small
from torch import nn

SEVERAL = "several kinds of data"
IMAGE_TOKEN = 5
PATCHES = 16


def matched(model: nn.Module) -> Batch:
    """Images with the texts that describe them."""
    del model
    return {**_ending(text()), "pixel_values": pixels(SIDE), "return_loss": True}


def _ending(batch: Batch) -> Batch:
    """With the token at each text's end by which CLIP finds it."""
    ids = batch["input_ids"].clone()
    ids[torch.arange(len(ids)), batch["attention_mask"].sum(1) - 1] = 2
    return {**batch, "input_ids": ids}


def _two(text_kind: str, vision_kind: str, **given: object) -> dict[str, object]:
    vision = small(vision_kind).to_dict()
    return {"text_config": small(text_kind).to_dict(), "vision_config": vision, **given}


hub(SEVERAL, matched, "CLIPModel", given=lambda: _two("CLIPTextConfig", "CLIPVisionConfig"))
hub(SEVERAL, matched, "SiglipModel", given=lambda: _two("SiglipTextConfig", "SiglipVisionConfig"))
hub(SEVERAL, matched, "ChineseCLIPModel", given=lambda: _two("ChineseCLIPTextConfig", "ChineseCLIPVisionConfig"))
hub(SEVERAL, matched, "BlipModel", given=lambda: _two("BlipTextConfig", "BlipVisionConfig"))
hub(SEVERAL, matched, "OwlViTModel", given=lambda: _two("OwlViTTextConfig", "OwlViTVisionConfig"))
hub(
    SEVERAL,
    matched,
    "VisionTextDualEncoderModel",
    given=lambda: {
        "text_config": small("BertConfig").to_dict(),
        "vision_config": small("ViTConfig").to_dict(),
        "projection_dim": 32,
    },
)
hub(
    SEVERAL,
    matched,
    "AlignModel",
    given=lambda: {
        "text_config": small("AlignTextConfig").to_dict(),
        "projection_dim": 160,
        "vision_config": small("AlignVisionConfig", hidden_dim=160, width_coefficient=0.5, depth_coefficient=0.5).to_dict(),
    },
)


def captioned(model: nn.Module) -> Batch:
    """Images with their captions to be written."""
    return {**causal(model), "pixel_values": pixels(SIDE)}


hub(SEVERAL, captioned, "BlipForConditionalGeneration", given=lambda: _two("BlipTextConfig", "BlipVisionConfig"))
hub(SEVERAL, captioned, "GitForCausalLM", given=lambda: {"vision_config": small("GitVisionConfig").to_dict()})


def written(model: nn.Module) -> Batch:
    """Images with the text that is on them."""
    del model
    return {"pixel_values": pixels(SIDE), "labels": words(8)}


hub(
    SEVERAL,
    written,
    "VisionEncoderDecoderModel",
    given=lambda: {
        "encoder": small("ViTConfig").to_dict(),
        "decoder": small("TrOCRConfig", is_decoder=True, add_cross_attention=True, cross_attention_hidden_size=32).to_dict(),
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
)
hub(
    SEVERAL,
    written,
    "VisionEncoderDecoderModel",
    variant="ViT and GPT-2",
    given=lambda: {
        "encoder": small("ViTConfig").to_dict(),
        "decoder": small("GPT2Config", is_decoder=True, add_cross_attention=True).to_dict(),
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
)


def conversation(model: nn.Module) -> Batch:
    """An image's patches in front of a text, and the text to be predicted."""
    del model
    image = torch.full((BATCH, PATCHES), IMAGE_TOKEN)
    ids, ones = words(), torch.ones(BATCH, PATCHES, dtype=torch.long)
    mask = padding_mask()
    labels = torch.cat([torch.full_like(image, -100), ids.masked_fill(mask == 0, -100)], 1)
    return {
        "input_ids": torch.cat([image, ids * mask], 1),
        "attention_mask": torch.cat([ones, mask], 1),
        "pixel_values": pixels(SIDE),
        "labels": labels,
    }


hub(
    SEVERAL,
    conversation,
    "LlavaForConditionalGeneration",
    given=lambda: {
        "vision_config": small("CLIPVisionConfig").to_dict(),
        "text_config": small("LlamaConfig").to_dict(),
        "image_token_index": IMAGE_TOKEN,
        "image_token_id": IMAGE_TOKEN,
        "vision_feature_layer": -1,
    },
)
hub(
    SEVERAL,
    conversation,
    "PaliGemmaForConditionalGeneration",
    given=lambda: {
        "vision_config": small("SiglipVisionConfig").to_dict(),
        "text_config": small("GemmaConfig").to_dict(),
        "image_token_index": IMAGE_TOKEN,
        "image_token_id": IMAGE_TOKEN,
        "projection_dim": 32,
    },
)


def questions(model: nn.Module) -> Batch:
    """An image and a question; the answer is one of three."""
    answer = torch.zeros(BATCH, LABELS)
    answer[:, 1] = 1
    return {
        **text(),
        "pixel_values": pixels(SIDE),
        "pixel_mask": torch.ones(BATCH, SIDE, SIDE, dtype=torch.long),
        "labels": answer,
    }


hub(SEVERAL, questions, "ViltForQuestionAnswering", given={"max_image_length": -1})


def queried(model: nn.Module) -> Batch:
    """Four learned queries stand for the image."""
    del model
    image, ids, mask = torch.full((BATCH, 4), IMAGE_TOKEN), words(), padding_mask()
    return {
        "input_ids": torch.cat([image, ids * mask], 1),
        "attention_mask": torch.cat([torch.ones_like(image), mask], 1),
        "pixel_values": pixels(SIDE),
        "labels": torch.cat([torch.full_like(image, -100), ids], 1),
    }


hub(
    SEVERAL,
    queried,
    "Blip2ForConditionalGeneration",
    given=lambda: {
        "vision_config": small("Blip2VisionConfig").to_dict(),
        "text_config": small("OPTConfig", word_embed_proj_dim=32).to_dict(),
        "qformer_config": small("Blip2QFormerConfig", encoder_hidden_size=32).to_dict(),
        "num_query_tokens": 4,
        "image_token_index": IMAGE_TOKEN,
        "image_token_id": IMAGE_TOKEN,
    },
)


def document(model: nn.Module) -> Batch:
    """A page: its tokens, where they are, and its image."""
    del model
    return {**text(), "bbox": boxes(), "pixel_values": pixels(SIDE), "labels": torch.randint(0, LABELS, (BATCH,))}


hub(
    SEVERAL,
    document,
    "LayoutLMv3ForSequenceClassification",
    given={
        "input_size": SIDE,
        "coordinate_size": 6,
        "shape_size": 4,
        "max_2d_position_embeddings": 1024,
    },
)


def described(model: nn.Module) -> Batch:
    """A text and what was found in its image."""
    del model
    return {
        **text(),
        "visual_embeds": torch.randn(BATCH, 5, 16),
        "visual_attention_mask": torch.ones(BATCH, 5),
        "labels": torch.rand(BATCH, LABELS).softmax(1),
    }


hub(SEVERAL, described, "VisualBertForQuestionAnswering", given={"visual_embedding_dim": 16})


def pointed(model: nn.Module) -> Batch:
    """A text names what is to be marked in the image."""
    del model
    return {**_ending(text()), "pixel_values": pixels(SIDE), "labels": (torch.rand(BATCH, SIDE, SIDE) > 0.5).float()}


hub(
    SEVERAL,
    pointed,
    "CLIPSegForImageSegmentation",
    given=lambda: _two(
        "CLIPSegTextConfig",
        "CLIPSegVisionConfig",
        extract_layers=[0],
        reduce_dim=16,
        decoder_intermediate_size=32,
    ),
)
