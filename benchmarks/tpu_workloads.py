"""Training runs that every TPU generation must compile: the examples, and common models at their usual sizes.

A loader's batch is that of one core. Data are zeros where only shapes matter.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from models import Block
from reference import gpt2, resnet50, torch_models
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
Run = tuple[systolic.LightningModule, DataLoader[Any]]


@dataclass(frozen=True)
class Workload:
    """One training run.

    Attributes:
        title: the model, its size and its batch on each core.
        make: the module and its loader.
        costly: compiling it takes minutes.
    """

    title: str
    make: Callable[[], Run]
    costly: bool = False


def example(name: str) -> Any:
    """A script of `examples/` as a module."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    return importlib.import_module(name)


def zeros(*tensors: tuple[tuple[int, ...], torch.dtype]) -> DataLoader[Any]:
    """One batch of tensors of these shapes."""
    return DataLoader(TensorDataset(*(torch.zeros(s, dtype=d) for s, d in tensors)), batch_size=tensors[0][0][0])


def images(batch: int, size: int) -> DataLoader[Any]:
    """One batch of images with labels."""
    return zeros(((batch, 3, size, size), torch.float32), ((batch,), torch.int64))


class Vae(systolic.LightningModule):
    """A convolutional variational autoencoder."""

    def __init__(self, width: int = 64, latent: int = 128) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(), nn.Flatten(),
            nn.Linear(2 * width * 64, 2 * latent),
        )  # fmt: skip
        self.decode = nn.Sequential(
            nn.Linear(latent, 2 * width * 64), nn.Unflatten(1, (2 * width, 8, 8)), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )  # fmt: skip

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        mean, log_variance = self.encode(batch[0]).chunk(2, dim=1)
        code = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return F.mse_loss(self.decode(code), batch[0], reduction="sum") / len(batch[0]) + divergence

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Lstm(systolic.LightningModule):
    """Two bidirectional layers that classify a text."""

    def __init__(self, vocabulary: int = 20_000, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, bidirectional=True, batch_first=True, dropout=0.2)
        self.head = nn.Linear(2 * width, 2)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        _, (hidden, _) = self.lstm(self.embedding(batch[0]))
        return F.cross_entropy(self.head(torch.cat([hidden[-2], hidden[-1]], dim=1)), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Gan(systolic.LightningModule):
    """A DCGAN with manual optimization."""

    def __init__(self, width: int = 64, latent: int = 100) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.latent = latent
        self.generator = nn.Sequential(
            nn.Linear(latent, 4 * width * 16), nn.Unflatten(1, (4 * width, 4, 4)), nn.BatchNorm2d(4 * width), nn.ReLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
            nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 4, 2, 1, bias=False), nn.BatchNorm2d(4 * width), nn.LeakyReLU(0.2),
            nn.Flatten(), nn.Linear(4 * width * 16, 1),
        )  # fmt: skip

    def training_step(self, batch: Any, batch_idx: int) -> None:
        real, optimizers = batch[0], self.optimizers()
        fake = self.generator(torch.randn(len(real), self.latent))

        self.toggle_optimizer(optimizers[0])
        self._update(optimizers[0], self._judged(fake, 1.0))
        self.untoggle_optimizer(optimizers[0])

        self.toggle_optimizer(optimizers[1])
        self._update(optimizers[1], (self._judged(real, 1.0) + self._judged(fake.detach(), 0.0)) / 2)
        self.untoggle_optimizer(optimizers[1])

    def _judged(self, pictures: torch.Tensor, target: float) -> torch.Tensor:
        scores = self.discriminator(pictures)
        return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))

    def _update(self, optimizer: Any, loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        parts = (self.generator, self.discriminator)
        return [torch.optim.Adam(part.parameters(), lr=2e-4, betas=(0.5, 0.999)) for part in parts]


class ResNet18(systolic.LightningModule):
    """ResNet-18 for 1,000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.blocks = nn.Sequential(*(b for i, o, stride in widths for b in (Block(i, o, stride), Block(o, o, 1))))
        self.head = nn.Linear(512, 1000)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return F.cross_entropy(self.head(self.blocks(self.stem(batch[0])).mean((2, 3))), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


class Bert(systolic.LightningModule):
    """transformers' BERT, 110M parameters, with padding masked; dropout 0.1 everywhere."""

    def __init__(self, layers: int = 12) -> None:
        super().__init__()
        from transformers import BertConfig, BertForMaskedLM

        self.model = BertForMaskedLM(BertConfig(num_hidden_layers=layers))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        tokens, labels = batch
        return self.model(input_ids=tokens, attention_mask=(tokens != 0).long(), labels=labels).loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def gpt2_124m() -> Run:
    sizes = gpt2.Sizes(batch=2)
    tokens = ((sizes.batch, sizes.length), torch.int64)
    return torch_models.GPT2(sizes), zeros(tokens, tokens)


WORKLOADS = {
    "mlp": Workload(
        "digits MLP (`examples/digits.py`), batch 64",
        lambda: (example("digits").DigitClassifier(), example("digits").loaders(64)[0]),
    ),
    "byte_gpt": Workload(
        "byte-level GPT (`examples/text.py`), 2 layers, width 128, 64 bytes, batch 16",
        lambda: (example("text").ByteGPT(), example("text").loaders(16)[0]),
    ),
    "vae": Workload("convolutional VAE, 32 x 32 images, batch 64", lambda: (Vae(), images(64, 32))),
    "lstm": Workload(
        "LSTM, 2 bidirectional layers of 256, 128 tokens, batch 32",
        lambda: (Lstm(), zeros(((32, 128), torch.int64), ((32,), torch.int64))),
    ),
    "gan": Workload("DCGAN with manual optimization, 32 x 32 images, batch 64", lambda: (Gan(), images(64, 32)), costly=True),
    "resnet18_digits": Workload(
        "ResNet-18 for 32 x 32 images (`examples/resnet.py`), batch 32",
        lambda: (example("resnet").ResNet18(), example("resnet").loaders(32)[0]),
        costly=True,
    ),
    "resnet18": Workload("ResNet-18, 224 x 224 images, batch 32", lambda: (ResNet18(), images(32, 224)), costly=True),
    "bert": Workload(
        "BERT base of transformers, 110M, 128 tokens, batch 8",
        lambda: (Bert(), zeros(*[((8, 128), torch.int64)] * 2)),
        costly=True,
    ),
    "resnet50": Workload(
        "ResNet-50, 224 x 224 images, batch 32",
        lambda: (torch_models.ResNet50(resnet50.Sizes.depths), images(32, 224)),
        costly=True,
    ),
    "gpt2": Workload("GPT-2 124M, 1,024 tokens, batch 2", gpt2_124m, costly=True),
}
PRECISIONS = ("bf16-mixed", "32-true", "bf16-true")
SLICES = ("v2-8", "v3-8", "v4-8", "v5litepod-8", "v5p-8", "v6e-8", "tpu7x-8")
