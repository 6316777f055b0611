"""Models that are compiled for TPUs twice: as PyTorch modules by systolic, and by hand in JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import torch
import torch.nn.functional as F
from jax.sharding import Mesh
from reference import bert, convnext, gpt2, llama, lstm, resnet50, t5, torch_models, unet, vit
from torch import nn
from torch.utils.data import DataLoader
from tpu_workloads import Bert, images, zeros

import systolic

Reference = Callable[[Mesh, int | None], tuple[Any, tuple[Any, ...]]]
"""The jitted step on a mesh and its arguments as shapes, for a number of layers; None for all."""

Ours = Callable[[int | None], tuple[systolic.LightningModule, DataLoader[Any]]]
"""A module and a loader whose batch is that of one core, for a number of layers; None for all."""


STREAM = "JAX, float32 stream"
"""Layers add to a stream in float32, as under PyTorch's autocast and in systolic; in the other references in bfloat16."""


@dataclass(frozen=True)
class Contest:
    """One model.

    Attributes:
        about: the model, its batch and its optimizer, as a sentence.
        references: steps by hand.
        ours: the same model in PyTorch.
        visited: the share of all scores that the references' kernel computes, which does not say so itself.
    """

    about: str
    references: Mapping[str, Reference]
    ours: Ours
    visited: float = 1.0


class UnderAdamW(systolic.LightningModule):
    """A module with the optimizer of the references."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=0.01)


class Vit(UnderAdamW):
    """transformers' ViT as it comes."""

    def __init__(self, sizes: vit.Sizes) -> None:
        super().__init__()
        from transformers import ViTConfig, ViTForImageClassification

        config: dict[str, Any] = {"num_hidden_layers": sizes.layers, "num_labels": sizes.classes}
        self.model = ViTForImageClassification(ViTConfig(**config))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Classification."""
        return self.model(pixel_values=batch[0], labels=batch[1]).loss


class ConvNext(UnderAdamW):
    """transformers' ConvNeXt as it comes."""

    def __init__(self, sizes: convnext.Sizes, scale: float = 1e-6) -> None:
        super().__init__()
        from transformers import ConvNextConfig, ConvNextForImageClassification

        config: dict[str, Any] = {
            "depths": list(sizes.depths),
            "hidden_sizes": list(sizes.widths),
            "num_stages": len(sizes.depths),
            "num_labels": sizes.classes,
        }
        self.model = ConvNextForImageClassification(ConvNextConfig(layer_scale_init_value=scale, **config))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Classification."""
        return self.model(pixel_values=batch[0], labels=batch[1]).loss


class Gpt2(UnderAdamW):
    """transformers' GPT-2 as it comes."""

    def __init__(self, sizes: gpt2.Sizes) -> None:
        super().__init__()
        from transformers import GPT2Config, GPT2LMHeadModel

        rates = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), sizes.dropout)
        config: dict[str, Any] = {
            "n_layer": sizes.layers,
            "n_embd": sizes.dim,
            "n_head": sizes.heads,
            "vocab_size": sizes.vocabulary,
            "n_positions": sizes.length,
        }
        self.model = GPT2LMHeadModel(GPT2Config(use_cache=False, **config, **rates))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Predict the targets."""
        tokens, targets = batch
        return F.cross_entropy(self.model(input_ids=tokens).logits.flatten(0, 1), targets.flatten())


class Llama(UnderAdamW):
    """transformers' Llama as it comes."""

    def __init__(self, sizes: llama.Sizes) -> None:
        super().__init__()
        from transformers import LlamaConfig, LlamaForCausalLM

        config: dict[str, Any] = {
            "hidden_size": sizes.dim,
            "intermediate_size": sizes.inner,
            "num_hidden_layers": sizes.layers,
            "num_attention_heads": sizes.heads,
            "num_key_value_heads": sizes.shared,
            "vocab_size": sizes.vocabulary,
            "max_position_embeddings": sizes.length,
        }
        self.model = LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, use_cache=False, **config))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Predict the next token."""
        return self.model(input_ids=batch[0], labels=batch[1]).loss


class T5(UnderAdamW):
    """transformers' T5 as it comes; padding of the tokens is masked."""

    def __init__(self, sizes: t5.Sizes) -> None:
        super().__init__()
        from transformers import T5Config, T5ForConditionalGeneration

        config: dict[str, Any] = {
            "d_model": sizes.dim,
            "d_ff": sizes.inner,
            "d_kv": sizes.dim // sizes.heads,
            "num_layers": sizes.layers,
            "num_heads": sizes.heads,
            "vocab_size": sizes.vocabulary,
            "dropout_rate": sizes.dropout,
        }
        self.model = T5ForConditionalGeneration(T5Config(decoder_start_token_id=0, use_cache=False, **config))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Predict the targets."""
        tokens, targets = batch
        return self.model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=targets).loss


class UNet(UnderAdamW):
    """diffusers' U-Net as it comes, which finds the noise in images."""

    def __init__(self, sizes: unet.Sizes) -> None:
        super().__init__()
        from diffusers import UNet2DModel

        kinds = ["Attn" if number == 1 else "" for number in range(len(sizes.widths))]
        # as in google/ddpm-cifar10-32
        config: dict[str, Any] = {
            "sample_size": sizes.image,
            "block_out_channels": sizes.widths,
            "layers_per_block": sizes.depth,
            "norm_num_groups": sizes.groups,
            "down_block_types": tuple(f"{kind}DownBlock2D" for kind in kinds),
            "up_block_types": tuple(f"{kind}UpBlock2D" for kind in reversed(kinds)),
            "attention_head_dim": None,
            "norm_eps": 1e-6,
            "downsample_padding": 0,
            "flip_sin_to_cos": False,
            "freq_shift": 1,
        }
        self.model = UNet2DModel(**config)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Images with noise, the time step of each, and the noise."""
        images, steps, noise = batch
        return F.mse_loss(self.model(images, steps).sample, noise)


class Lstm(UnderAdamW):
    """`nn.LSTM` as a language model."""

    def __init__(self, sizes: lstm.Sizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.lstm = nn.LSTM(sizes.width, sizes.width, sizes.layers, batch_first=True, dropout=sizes.dropout)
        self.head = nn.Linear(sizes.width, sizes.vocabulary)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Predict the next token."""
        tokens, targets = batch
        return F.cross_entropy(self.head(self.lstm(self.tokens(tokens))[0]).flatten(0, 1), targets.flatten())


def _tokens(batch: int, length: int) -> DataLoader[Any]:
    return zeros(*[((batch, length), torch.int64)] * 2)


def _gpt2() -> Contest:
    def sizes(layers: int | None, **given: Any) -> gpt2.Sizes:
        return gpt2.Sizes(layers=layers or gpt2.Sizes.layers, **given)

    return Contest(
        "GPT-2 124M, batch 8 x 1024 per core, dropout 0.1 (not on attention probabilities), AdamW.",
        {
            "JAX": lambda mesh, layers: gpt2.step_of(mesh, sizes(layers)),
            STREAM: lambda mesh, layers: gpt2.step_of(mesh, sizes(layers, stream=jnp.float32)),
        },
        lambda layers: (torch_models.GPT2(sizes(layers)), _tokens(8, 1024)),
    )


def _gpt2_as_it_comes() -> Contest:
    def sizes(layers: int | None, **given: Any) -> gpt2.Sizes:
        return gpt2.Sizes(layers=layers or gpt2.Sizes.layers, **given)

    return Contest(
        "GPT-2 124M of transformers, batch 8 x 1024 per core, dropout 0.1 everywhere, AdamW; the reference with JAX's splash "
        "kernel has no dropout on attention probabilities.",
        {
            "JAX, plain attention": lambda mesh, layers: gpt2.step_of(mesh, sizes(layers, splash=False)),
            "JAX, splash attention": lambda mesh, layers: gpt2.step_of(mesh, sizes(layers)),
            STREAM: lambda mesh, layers: gpt2.step_of(mesh, sizes(layers, stream=jnp.float32)),
        },
        lambda layers: (Gpt2(sizes(layers)), _tokens(8, 1024)),
    )


def _bert(batch: int, length: int) -> Contest:
    def sizes(layers: int | None, **given: Any) -> bert.Sizes:
        return bert.Sizes(layers=layers or bert.Sizes.layers, batch=batch, length=length, **given)

    return Contest(
        f"BERT base of transformers, batch {batch} x {length} per core, padding masked, dropout 0.1 everywhere, AdamW; the "
        "reference with JAX's splash kernel has no dropout on attention probabilities.",
        {
            "JAX, plain attention": lambda mesh, layers: bert.step_of(mesh, sizes(layers)),
            "JAX, splash attention": lambda mesh, layers: bert.step_of(mesh, sizes(layers, splash=True)),
            STREAM: lambda mesh, layers: bert.step_of(mesh, sizes(layers, splash=True, stream=jnp.float32)),
        },
        lambda layers: (Bert(sizes(layers).layers), _tokens(batch, length)),
    )


def _vit() -> Contest:
    def sizes(layers: int | None, splash: bool = False) -> vit.Sizes:
        return vit.Sizes(layers=layers or vit.Sizes.layers, splash=splash)

    return Contest(
        f"ViT-B/16 of transformers, {vit.Sizes.batch} images per core, AdamW.",
        {
            "JAX, plain attention": lambda mesh, layers: vit.step_of(mesh, sizes(layers)),
            "JAX, splash attention": lambda mesh, layers: vit.step_of(mesh, sizes(layers, splash=True)),
        },
        lambda layers: (Vit(sizes(layers)), images(vit.Sizes.batch, vit.Sizes.image)),
    )


def _convnext() -> Contest:
    def sizes(layers: int | None, **given: Any) -> convnext.Sizes:
        return convnext.Sizes(depths=(layers,) * 4 if layers else convnext.Sizes.depths, **given)

    return Contest(
        f"ConvNeXt-T of transformers, {convnext.Sizes.batch} images per core, AdamW.",
        {
            "JAX": lambda mesh, layers: convnext.step_of(mesh, sizes(layers)),
            STREAM: lambda mesh, layers: convnext.step_of(mesh, sizes(layers, stream=jnp.float32)),
        },
        lambda layers: (ConvNext(sizes(layers)), images(convnext.Sizes.batch, convnext.Sizes.image)),
    )


def _llama() -> Contest:
    def sizes(layers: int | None, **given: Any) -> llama.Sizes:
        return llama.Sizes(layers=layers or llama.Sizes.layers, **given)

    whole = sizes(None)
    return Contest(
        f"Llama of transformers, {whole.layers} layers of Llama 3.2 1B with {whole.vocabulary:,} words, batch {whole.batch} x "
        f"{whole.length:,} per core, AdamW.",
        {
            "JAX, splash attention": lambda mesh, layers: llama.step_of(mesh, sizes(layers)),
            STREAM: lambda mesh, layers: llama.step_of(mesh, sizes(layers, stream=jnp.float32)),
        },
        lambda layers: (Llama(sizes(layers)), _tokens(whole.batch, whole.length)),
        # causal, in tiles of 1,024: of four the one above the diagonal is skipped
        visited=3 / 4,
    )


def _t5() -> Contest:
    def sizes(layers: int | None, **given: Any) -> t5.Sizes:
        return t5.Sizes(layers=layers or t5.Sizes.layers, **given)

    whole = sizes(None)
    texts = [((whole.batch, n), torch.int64) for n in (whole.length, whole.targets)]
    return Contest(
        f"T5 base of transformers, batch {whole.batch} x {whole.length} tokens in and {whole.targets} out per core, padding "
        "masked, dropout 0.1 everywhere, AdamW.",
        {
            "JAX, plain attention": lambda mesh, layers: t5.step_of(mesh, sizes(layers)),
            STREAM: lambda mesh, layers: t5.step_of(mesh, sizes(layers, stream=jnp.float32)),
        },
        lambda layers: (T5(sizes(layers)), zeros(*texts)),
    )


def _lstm() -> Contest:
    def sizes(layers: int | None) -> lstm.Sizes:
        return lstm.Sizes(layers=layers or lstm.Sizes.layers)

    whole = sizes(None)
    return Contest(
        f"nn.LSTM, {whole.layers} layers of {whole.width} as a language model, batch {whole.batch} x {whole.length} per core, "
        f"dropout {whole.dropout} between the layers, AdamW.",
        {"JAX": lambda mesh, layers: lstm.step_of(mesh, sizes(layers))},
        lambda layers: (Lstm(sizes(layers)), _tokens(whole.batch, whole.length)),
    )


def _unet() -> Contest:
    def sizes(layers: int | None) -> unet.Sizes:
        return unet.Sizes(depth=layers or unet.Sizes.depth)

    batch, size = unet.Sizes.batch, unet.Sizes.image
    noise = (batch, 3, size, size), torch.float32
    return Contest(
        f"DDPM's U-Net of diffusers, {batch} images of {size} x {size} per core with their noise, AdamW.",
        {"JAX": lambda mesh, layers: unet.step_of(mesh, sizes(layers))},
        lambda layers: (UNet(sizes(layers)), zeros(noise, ((batch,), torch.int64), noise)),
    )


def _resnet50() -> Contest:
    def sizes(layers: int | None) -> resnet50.Sizes:
        return resnet50.Sizes(depths=(layers,) * 4 if layers else resnet50.Sizes.depths)

    def ours(layers: int | None) -> tuple[systolic.LightningModule, DataLoader[Any]]:
        chosen = sizes(layers)
        return torch_models.ResNet50(chosen.depths), images(chosen.batch, chosen.image)

    return Contest(
        "ResNet-50, batch 128 per core, SGD with momentum.",
        {"JAX": lambda mesh, layers: resnet50.step_of(mesh, sizes(layers))},
        ours,
    )


CONTESTS: dict[str, Contest] = {
    "gpt2": _gpt2(),
    "gpt2-dropout": _gpt2_as_it_comes(),
    "bert-128": _bert(8, 128),
    "bert-512": _bert(8, 512),
    "vit": _vit(),
    "convnext": _convnext(),
    "llama": _llama(),
    "t5": _t5(),
    "lstm": _lstm(),
    "resnet50": _resnet50(),
    "unet": _unet(),
}
"""By the name in the table."""
