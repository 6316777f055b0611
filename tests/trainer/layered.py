"""Modules of repeated layers, in the ways that people write them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L

WIDTH, HEADS, LENGTH, WORDS = 16, 2, 8, 32


class Module(L.LightningModule):
    """A network with its loss, trained without moments: Adam's first steps make digits of rounding errors."""

    def __init__(self, net: nn.Module, loss: Callable[[nn.Module, Any], torch.Tensor]) -> None:
        super().__init__()
        self.net = net
        self.__dict__["loss"] = loss

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(self.net, batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(self.net, batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)


class Block(nn.Module):
    """A transformer's."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)
        self.wide = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.project(self.norm(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.drop(self.mix(mixed.transpose(1, 2).flatten(2)))
        return x + self.wide(x)


def next_word(net: nn.Module, batch: Any) -> torch.Tensor:
    logits = net(batch[0])
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), batch[0][:, 1:].flatten())


def blocks(dropout: float, layers: int = 4) -> L.LightningModule:
    """Blocks of one's own in a Sequential."""
    net = nn.Sequential(
        nn.Embedding(WORDS, WIDTH), nn.Sequential(*(Block(dropout) for _ in range(layers))), nn.Linear(WIDTH, WORDS)
    )
    return Module(net, next_word)


def gpt(dropout: float) -> L.LightningModule:
    """GPT-2 of transformers."""
    import transformers

    config = transformers.GPT2Config(
        n_layer=4, n_embd=WIDTH, n_head=HEADS, vocab_size=WORDS, n_positions=LENGTH, resid_pdrop=dropout, embd_pdrop=dropout,
        attn_pdrop=dropout, bos_token_id=None, eos_token_id=None, loss_type="ForCausalLM",
    )  # fmt: skip
    return Module(transformers.GPT2LMHeadModel(config), lambda net, batch: net(batch[0], labels=batch[0]).loss)


def bert(dropout: float) -> L.LightningModule:
    """BERT of transformers, with sentences of different lengths."""
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=4, hidden_size=WIDTH, num_attention_heads=HEADS, intermediate_size=2 * WIDTH, vocab_size=WORDS,
        max_position_embeddings=LENGTH, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip

    def loss(net: nn.Module, batch: Any) -> torch.Tensor:
        mask = (batch[0].cumsum(1) < 4 * WORDS).long()
        return net(batch[0], attention_mask=mask, labels=batch[0]).loss

    return Module(transformers.BertForMaskedLM(config), loss)


def encoder(dropout: float) -> L.LightningModule:
    """PyTorch's own encoder, with the length first and a mask of what is padding."""
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout)
    net = nn.ModuleDict(
        {"words": nn.Embedding(WORDS, WIDTH), "layers": nn.TransformerEncoder(layer, 4), "head": nn.Linear(WIDTH, WORDS)}
    )

    def loss(net: Any, batch: Any) -> torch.Tensor:
        x = net["words"](batch[0]).transpose(0, 1)
        x = net["layers"](x, src_key_padding_mask=batch[0] == 0).transpose(0, 1)
        return nn.functional.cross_entropy(net["head"](x).flatten(0, 1), batch[0].flatten())

    return Module(net, loss)


def perceptron(dropout: float) -> L.LightningModule:
    """Layers that repeat in turns, in one Sequential, between others."""
    layers: list[nn.Module] = [nn.Linear(LENGTH, WIDTH)]
    for _ in range(4):
        layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Dropout(dropout)]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    return Module(net, lambda net, batch: net(batch[0] / WORDS).square().mean())


MODELS: dict[str, Callable[[float], L.LightningModule]] = {
    "blocks": blocks, "gpt": gpt, "bert": bert, "encoder": encoder, "perceptron": perceptron,
}  # fmt: skip


def made(name: str, dropout: float) -> L.LightningModule:
    """One of the modules, with the same weights every time."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name](dropout)


def words(size: int = 8) -> DataLoader[Any]:
    """Four batches of sentences."""
    torch.manual_seed(1)
    return DataLoader(TensorDataset(torch.randint(WORDS, (4 * size, LENGTH))), batch_size=size)
