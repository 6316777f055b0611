"""Rows of the model sweep: models of other packages, those of them that are installed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from _models_batches import BATCH, LABELS, causal, masked
from _models_hub import hub
from _models_row import Batch, Row, add, mean_square, without_dropout
from torch import nn


def _is_installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _define_torchvision_ops() -> None:
    """Let torchvision be imported whose compiled ops are for another build of PyTorch; no model of the sweep calls them."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        torch.library.define("torchvision::nms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch.library.define("torchvision::qnms", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        importlib.import_module("torchvision")


def images(side: int) -> Callable[[nn.Module], Batch]:
    """Images with a class for each."""
    return lambda model: {"x": torch.randn(BATCH, 3, side, side), "y": torch.randint(0, LABELS, (BATCH,))}


def pixel_images(side: int) -> Callable[[nn.Module], Batch]:
    """Images with a class for each pixel."""
    return lambda model: {"x": torch.randn(BATCH, 3, side, side), "y": torch.randint(0, LABELS, (BATCH, side, side))}


def classification(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy, of auxiliary outputs too."""
    output = model(batch["x"])
    if isinstance(output, dict):
        return sum((F.cross_entropy(one, batch["y"]) for one in output.values()), torch.zeros(()))
    if isinstance(output, torch.Tensor):
        return F.cross_entropy(output, batch["y"])
    return sum((F.cross_entropy(one, batch["y"]) for one in output), torch.zeros(()))


def _timm(name: str, given: dict[str, Any], blocks: int | None) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        model = without_dropout(timm.create_model(name, pretrained=False, num_classes=LABELS, **given))
        if blocks is not None:
            model.blocks = model.blocks[:blocks]
        return model

    return build


_HEADS: dict[str, Any] = {
    "img_size": 64,
    "embed_dim": 16,
    "depths": (1, 1, 1, 1),
    "num_heads": (1, 2, 4, 8),
    "drop_path_rate": 0.0,
}
_SHORT: dict[str, Any] = {"img_size": 64, "depth": 2}
_TIMM: dict[str, dict[str, Any]] = {
    "resnet10t": {},
    "resnext26ts": {},
    "seresnet18": {},
    "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small_035": {},
    "tinynet_e": {},
    "ghostnet_050": {"drop_rate": 0.0},
    "mnasnet_small": {},
    "regnety_002": {},
    "densenet121": {"growth_rate": 4, "block_config": (2, 2, 2, 2)},
    "dla46_c": {},
    "convnext_atto": {},
    "convmixer_768_32": {},
    "nf_resnet26": {},
    "edgenext_xx_small": {},
    "vit_tiny_patch16_224": _SHORT,
    "deit_tiny_distilled_patch16_224": _SHORT,
    "beit_base_patch16_224": {**_SHORT, "embed_dim": 48, "num_heads": 4},
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "swin_tiny_patch4_window7_224": _HEADS,
    "swinv2_tiny_window8_256": _HEADS,
    "mixer_s32_224": {"img_size": 64},
    "gmixer_12_224": {"img_size": 64},
    "cait_xxs24_224": _SHORT,
    "xcit_nano_12_p16_224": _SHORT,
    "poolformer_s12": {},
    "pvt_v2_b0": {},
    "mobilevit_xxs": {},
    "vgg11_bn": {},
    "repvgg_a0": {},
}


_TIMM_BLOCKS = {"convmixer_768_32": 2, "mixer_s32_224": 2, "gmixer_12_224": 2}
"""How many blocks stay of models that take no number of them."""


def _add_timm() -> None:
    for name, given in _TIMM.items():
        build = _timm(name, given, _TIMM_BLOCKS.get(name))
        add(Row(f"timm {name}", "timm", build, images(given.get("img_size", 64)), classification))


def _torchvision(kind: str, name: str, given: dict[str, Any]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        models = importlib.import_module(f"torchvision.models{kind}")
        return without_dropout(getattr(models, name)(weights=None, num_classes=LABELS, **given))

    return build


_TORCHVISION = (
    "resnet18",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "mnasnet0_5",
    "regnet_y_400mf",
    "efficientnet_b0",
)


def _add_torchvision() -> None:
    for name in _TORCHVISION:
        add(Row(f"torchvision {name}", "torchvision", _torchvision("", name, {}), images(64), classification))
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
        build = _torchvision(".segmentation", name, {"weights_backbone": None})
        add(Row(f"torchvision {name}", "torchvision", build, pixel_images(64), classification))
    for name, given in {
        "retinanet_resnet50_fpn": {"min_size": 64, "max_size": 64},
        "ssdlite320_mobilenet_v3_large": {},
    }.items():
        build = _torchvision(".detection", name, {"weights_backbone": None, **given})
        add(Row(f"torchvision {name}", "torchvision", build, _found, _detection))


def _found(model: nn.Module) -> Batch:
    corners = torch.rand(2, 2, 2) * 30
    found = [{"boxes": torch.cat([c, c + 5 + torch.rand(2, 2) * 25], 1), "labels": torch.tensor([1, 2])} for c in corners]
    return {"images": list(torch.rand(2, 3, 64, 64)), "targets": found}


def _detection(model: nn.Module, batch: Batch) -> torch.Tensor:
    return sum(model(batch["images"], batch["targets"]).values())


def _add_segmentation() -> None:
    names = (
        "Unet",
        "UnetPlusPlus",
        "MAnet",
        "Linknet",
        "FPN",
        "PSPNet",
        "DeepLabV3",
        "DeepLabV3Plus",
        "PAN",
        "UPerNet",
        "Segformer",
    )
    for name in names:
        add(
            Row(
                f"segmentation_models_pytorch {name}",
                "segmentation_models_pytorch",
                functools.partial(_segmenter, name),
                pixel_images(128 if name == "PAN" else 64),
                classification,
            )
        )


def _segmenter(name: str) -> nn.Module:
    import segmentation_models_pytorch

    return without_dropout(getattr(segmentation_models_pytorch, name)("resnet18", encoder_weights=None, classes=LABELS))


_UNET = {
    "sample_size": 16,
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "attention_head_dim": 8,
}
_CONDITIONED = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
_DIFFUSERS: dict[str, dict[str, Any]] = {
    "UNet2DModel": {
        **_UNET,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    },
    "UNet2DConditionModel": {**_UNET, **_CONDITIONED, "cross_attention_dim": 32},
    "DiTTransformer2DModel": {
        "sample_size": 8,
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "num_embeds_ada_norm": 10,
        "in_channels": 4,
        "out_channels": 4,
        "norm_num_groups": 4,
    },
    "PixArtTransformer2DModel": {
        "sample_size": 8,
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 8,
        "caption_channels": 32,
        "cross_attention_dim": 16,
        "in_channels": 4,
        "out_channels": 4,
    },
    "SD3Transformer2DModel": {
        "sample_size": 8,
        "patch_size": 2,
        "in_channels": 4,
        "num_layers": 2,
        "attention_head_dim": 8,
        "num_attention_heads": 4,
        "joint_attention_dim": 32,
        "caption_projection_dim": 32,
        "pooled_projection_dim": 32,
        "out_channels": 4,
        "pos_embed_max_size": 8,
    },
    "AutoencoderKL": {
        "block_out_channels": (16, 32),
        "norm_num_groups": 8,
        "layers_per_block": 1,
        "sample_size": 32,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    "VQModel": {
        "block_out_channels": (16, 32),
        "norm_num_groups": 8,
        "layers_per_block": 1,
        "num_vq_embeddings": 16,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    },
    "AutoencoderTiny": {
        "encoder_block_out_channels": (16, 16),
        "decoder_block_out_channels": (16, 16),
        "num_encoder_blocks": (1, 1),
        "num_decoder_blocks": (1, 1),
    },
    "UNet1DModel": {
        "sample_size": 64,
        "block_out_channels": (32, 64),
        "in_channels": 2,
        "out_channels": 2,
        "down_block_types": ("DownBlock1D", "AttnDownBlock1D"),
        "up_block_types": ("AttnUpBlock1D", "UpBlock1D"),
    },
}


def _diffuser(name: str) -> nn.Module:
    import diffusers

    return without_dropout(getattr(diffusers, name)(**_DIFFUSERS[name]))


def _noised(name: str, model: nn.Module) -> Batch:
    del model
    steps = torch.randint(0, 1000, (2,))
    if name.startswith(("Auto", "VQ")):
        return {"sample": torch.randn(2, 3, 32, 32)}
    if name == "UNet1DModel":
        return {"sample": torch.randn(2, 2, 64), "timestep": steps}
    if name == "SD3Transformer2DModel":
        words = {"encoder_hidden_states": torch.randn(2, 6, 32), "pooled_projections": torch.randn(2, 32)}
        return {"hidden_states": torch.randn(2, 4, 8, 8), "timestep": steps, **words}
    if name == "DiTTransformer2DModel":
        return {"hidden_states": torch.randn(2, 4, 8, 8), "timestep": steps, "class_labels": torch.randint(0, 10, (2,))}
    if name == "PixArtTransformer2DModel":
        return {"hidden_states": torch.randn(2, 4, 8, 8), "timestep": steps, "encoder_hidden_states": torch.randn(2, 6, 32)}
    images = {"sample": torch.randn(2, 4 if "Condition" in name else 3, 16, 16), "timestep": steps}
    return {**images, "encoder_hidden_states": torch.randn(2, 6, 32)} if "Condition" in name else images


def _denoising(model: nn.Module, batch: Batch) -> torch.Tensor:
    return mean_square(model(**batch))


def _add_diffusers() -> None:
    for name in _DIFFUSERS:
        build = functools.partial(_diffuser, name)
        add(Row(f"diffusers {name}", "diffusers", build, functools.partial(_noised, name), _denoising))


class Graphs(nn.Module):
    """Two layers over a graph, and a class for each node."""

    def __init__(self, kind: str, given: dict[str, Any]) -> None:
        super().__init__()
        layers = importlib.import_module("torch_geometric.nn")
        self.first = getattr(layers, kind)(*_layer(kind, 8, 16), **given)
        self.second = getattr(layers, kind)(*_layer(kind, 16, LABELS), **given)

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Scores [nodes, classes]."""
        return self.second(F.elu(self.first(x, edges)), edges)


def _layer(kind: str, inputs: int, outputs: int) -> tuple[Any, ...]:
    return (
        (nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs)),) if kind == "GINConv" else (inputs, outputs)
    )


def _graph(model: nn.Module) -> Batch:
    del model
    return {"x": torch.randn(20, 8), "edges": torch.randint(0, 20, (2, 60)), "y": torch.randint(0, LABELS, (20,))}


def _nodes(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch["x"], batch["edges"]), batch["y"])


def _add_geometric() -> None:
    several = {"heads": 2, "concat": False}
    given = {"GATConv": several, "GATv2Conv": several, "TransformerConv": several, "ChebConv": {"K": 2}}
    for kind in (
        "GCNConv",
        "SAGEConv",
        "GATConv",
        "GATv2Conv",
        "GINConv",
        "GraphConv",
        "TransformerConv",
        "ChebConv",
        "TAGConv",
        "SGConv",
        "ResGatedGraphConv",
        "LEConv",
        "ClusterGCNConv",
        "GENConv",
    ):
        add(
            Row(
                f"torch_geometric {kind}",
                "torch_geometric",
                functools.partial(Graphs, kind, given.get(kind, {})),
                _graph,
                _nodes,
            )
        )


def _adapted(**given: Any) -> Callable[[nn.Module], nn.Module]:
    def prepare(model: nn.Module) -> nn.Module:
        import peft

        # a learned B, so that A has a gradient from the first step on
        return peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, init_lora_weights=False, **given))

    return prepare


def _add_peft() -> None:
    hub(
        "variants",
        causal,
        "LlamaForCausalLM",
        variant="LoRA",
        prepare=_adapted(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    hub("variants", causal, "GPT2LMHeadModel", variant="LoRA", prepare=_adapted(target_modules=["c_attn"], fan_in_fan_out=True))
    hub(
        "variants",
        masked,
        "BertForMaskedLM",
        variant="DoRA",
        prepare=_adapted(target_modules=["query", "value"], use_dora=True),
    )


if _is_installed("torchvision"):
    _define_torchvision_ops()
for _name, _add in {
    "peft": _add_peft,
    "torchvision": _add_torchvision,
    "timm": _add_timm,
    "diffusers": _add_diffusers,
    "torch_geometric": _add_geometric,
    "segmentation_models_pytorch": _add_segmentation,
}.items():
    if _is_installed(_name):
        _add()
