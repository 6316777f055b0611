"""Rows of the model sweep: models of images and videos."""

from __future__ import annotations

import torch
from _models_batches import depth, detected, image_classes, image_label, image_only, image_side, pixels, segmented, video_label
from _models_hub import hub
from _models_row import Batch
from _models_shrink import small
from torch import nn

CLASSIFIERS, DENSE, DETECTORS, VIDEO = "image classifiers", "segmentation and depth", "detection", "video"

_MOBILE_VIT = {"image_size": 64, "patch_size": 2, "hidden_sizes": [16, 32, 32], "expand_ratio": 2.0}

hub(
    CLASSIFIERS,
    image_label,
    "BeitForImageClassification",
    "Data2VecVisionForImageClassification",
    "DeiTForImageClassification",
    "Dinov2ForImageClassification",
    "Dinov2WithRegistersForImageClassification",
    "IJepaForImageClassification",
    "RegNetForImageClassification",
    "ResNetForImageClassification",
    "ViTForImageClassification",
    "ViTMSNForImageClassification",
    "PoolFormerForImageClassification",
)
hub(
    CLASSIFIERS,
    image_label,
    "ConvNextForImageClassification",
    "ConvNextV2ForImageClassification",
    given={
        "image_size": 64,
        "patch_size": 4,
    },
)
hub(CLASSIFIERS, image_label, "BitForImageClassification", given={"num_groups": 2})
hub(
    CLASSIFIERS,
    image_label,
    "SwinForImageClassification",
    "Swinv2ForImageClassification",
    given={
        "image_size": 64,
        "patch_size": 4,
        "window_size": 2,
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "MobileNetV1ForImageClassification",
    "MobileNetV2ForImageClassification",
    given={
        "image_size": 64,
        "depth_multiplier": 0.25,
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "MobileViTForImageClassification",
    given=_MOBILE_VIT,
)
hub(
    CLASSIFIERS,
    image_label,
    "MobileViTV2ForImageClassification",
    given={
        "image_size": 64,
        "patch_size": 2,
        "n_attn_blocks": [1, 1, 1],
        "base_attn_unit_dims": [16, 16, 32],
        "width_multiplier": 0.5,
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "LevitForImageClassification",
    given={
        "image_size": 64,
        "patch_size": 16,
        "hidden_sizes": [16, 32, 32],
        "num_attention_heads": [2, 2, 2],
        "key_dim": [8, 8, 8],
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "PvtForImageClassification",
    "PvtV2ForImageClassification",
    given={
        "image_size": 64,
        "sequence_reduction_ratios": [4, 2, 1, 1],
        "mlp_ratios": [2, 2, 2, 2],
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "CvtForImageClassification",
    given={
        "embed_dim": [16, 32, 32],
        "num_heads": [1, 2, 2],
        "depth": [1, 2, 3],
        "drop_path_rate": [0.0, 0.0, 0.0],
    },
)
hub(
    CLASSIFIERS,
    image_label,
    "EfficientNetForImageClassification",
    given={
        "image_size": 64,
        "width_coefficient": 0.5,
        "depth_coefficient": 0.5,
        "hidden_dim": 640,
    },
)
hub(CLASSIFIERS, image_label, "FocalNetForImageClassification", given={"image_size": 64, "patch_size": 4})
hub(
    CLASSIFIERS,
    image_label,
    "HieraForImageClassification",
    given={
        "image_size": [64, 64],
        "masked_unit_size": [4, 4],
        "num_query_pool": 2,
        "depths": [1, 1, 1],
        "num_heads": [1, 2, 4],
        "masked_unit_attention": [True, True, False],
    },
)
hub(CLASSIFIERS, image_label, "SwiftFormerForImageClassification", given={"image_size": 64, "embed_dims": [16, 32, 32, 64]})
hub(CLASSIFIERS, image_label, "SegformerForImageClassification")
hub(CLASSIFIERS, image_label, "ViTForImageClassification", given={"attn_implementation": "eager"}, variant="eager attention")
hub(CLASSIFIERS, image_only, "DINOv3ViTModel", given={"pos_embed_rescale": None})
hub(CLASSIFIERS, image_only, "CLIPVisionModel", "SiglipVisionModel")


def hidden_patches(model: nn.Module) -> Batch:
    """Some patches of each image are hidden; which, is given."""
    side = image_side(model)
    return {"pixel_values": pixels(side), "bool_masked_pos": torch.rand(4, (side // model.config.patch_size) ** 2) < 0.4}


hub(CLASSIFIERS, hidden_patches, "ViTForMaskedImageModeling", given={"encoder_stride": 8})


def noised(model: nn.Module) -> Batch:
    """The noise that says which patches are hidden is given, so that both sides hide the same."""
    side = image_side(model)
    return {"pixel_values": pixels(side), "noise": torch.rand(4, (side // model.config.patch_size) ** 2)}


hub(CLASSIFIERS, noised, "ViTMAEForPreTraining")


def colours(model: nn.Module) -> Batch:
    """Images as rows of colours."""
    del model
    ids = torch.randint(0, 98, (4, 16))
    return {"input_ids": ids, "labels": ids}


hub(CLASSIFIERS, colours, "ImageGPTForCausalImageModeling")

hub(DENSE, image_classes, "SegformerForSemanticSegmentation")
hub(DENSE, image_classes, "BeitForSemanticSegmentation", given={"num_hidden_layers": 4, "out_indices": [1, 2, 3, 4]})
hub(
    DENSE,
    image_classes,
    "MobileViTForSemanticSegmentation",
    given=_MOBILE_VIT,
)
hub(
    DENSE,
    image_classes,
    "UperNetForSemanticSegmentation",
    given=lambda: {
        "backbone_config": small("ConvNextConfig", out_features=["stage1", "stage2", "stage3", "stage4"], image_size=64),
        "hidden_size": 32,
        "auxiliary_in_channels": 32,
    },
)
_DPT = {
    "backbone_out_indices": [0, 1, 2, 3],
    "num_hidden_layers": 4,
    "neck_hidden_sizes": [8, 8, 16, 16],
    "is_hybrid": False,
}
hub(DENSE, image_classes, "DPTForSemanticSegmentation", given=_DPT)
hub(DENSE, image_only, "DPTForDepthEstimation", given=_DPT)
hub(DENSE, depth, "GLPNForDepthEstimation", given={"hidden_sizes": [16, 32, 32, 64]})
hub(
    DENSE,
    image_only,
    "DepthAnythingForDepthEstimation",
    given=lambda: {
        "backbone_config": small(
            "Dinov2Config", out_features=["stage1", "stage2"], reshape_hidden_states=False, patch_size=8, num_hidden_layers=2
        ),
        "patch_size": 8,
        "reassemble_hidden_size": 32,
        "reassemble_factors": [1, 0.5],
        "neck_hidden_sizes": [8, 8],
        "fusion_hidden_size": 8,
        "head_hidden_size": 8,
    },
)
hub(
    DENSE,
    image_only,
    "Swin2SRForImageSuperResolution",
    given={
        "image_size": 16,
        "patch_size": 1,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "upscale": 2,
    },
)


def _resnet() -> dict[str, object]:
    return {"backbone_config": small("ResNetConfig", out_features=["stage1", "stage2", "stage3", "stage4"], num_labels=3)}


hub(DETECTORS, detected, "DetrForObjectDetection", "ConditionalDetrForObjectDetection", given=_resnet)
hub(
    DETECTORS, detected, "DetrForObjectDetection", variant="auxiliary loss", given=lambda: {**_resnet(), "auxiliary_loss": True}
)
hub(DETECTORS, detected, "DeformableDetrForObjectDetection", given=lambda: {**_resnet(), "decoder_layers": 2})
hub(DETECTORS, detected, "TableTransformerForObjectDetection", given=_resnet)
hub(DETECTORS, detected, "YolosForObjectDetection", given={"num_detection_tokens": 6})
hub(
    DETECTORS,
    detected,
    "RTDetrForObjectDetection",
    given=lambda: {
        "backbone_config": small(
            "RTDetrResNetConfig", out_features=["stage2", "stage3", "stage4"], hidden_sizes=[16, 32, 32, 64]
        ),
        "encoder_in_channels": [32, 32, 64],
        "encoder_hidden_dim": 32,
        "decoder_in_channels": [32, 32, 32],
        "num_denoising": 0,
    },
)
hub(
    DETECTORS,
    segmented,
    "MaskFormerForInstanceSegmentation",
    given=lambda: {
        "backbone_config": small(
            "SwinConfig", image_size=64, patch_size=4, window_size=2, out_features=["stage1", "stage2", "stage3", "stage4"]
        ),
        "decoder_config": small("DetrConfig"),
    },
)
hub(VIDEO, video_label, "VideoMAEForVideoClassification", "TimesformerForVideoClassification")
hub(VIDEO, video_label, "VivitForVideoClassification", given={"tubelet_size": [2, 8, 8]})
