"""Train a byte-level GPT on the Python documentation that ships with Python, and draw the loss curve."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pydoc_data.topics import topics
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L


@dataclass(frozen=True)
class Size:
    """How large the network is."""

    layers: int = 2
    heads: int = 4
    width: int = 128
    context: int = 64
    dropout: float = 0.0


class Block(nn.Module):
    """Causal self-attention, then a multilayer perceptron, each added to what came in."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.dropout = size.heads, size.dropout
        self.norm1, self.norm2 = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.mix = nn.Linear(size.width, size.width)
        self.mlp = nn.Sequential(
            nn.Linear(size.width, 4 * size.width), nn.GELU(), nn.Linear(4 * size.width, size.width), nn.Dropout(size.dropout)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        x = x + self.mix(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class ByteGPT(L.LightningModule):
    """Predicts the next byte. Input and output embedding are one matrix."""

    def __init__(self, size: Size | None = None, lr: float = 3e-3) -> None:
        super().__init__()
        size = size or Size()
        self.lr = lr
        self.embed = nn.Embedding(256, size.width)
        self.positions = nn.Parameter(torch.randn(size.context, size.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, 256, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    def loss(self, windows: torch.Tensor) -> torch.Tensor:
        logits = self(windows[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch[0])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch[0]), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.01)


class LossCurve(L.Callback):
    """Keeps every step's loss. Keeping one costs nothing: it stays on the device until the curve is drawn."""

    def __init__(self) -> None:
        self.losses: list[torch.Tensor] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(outputs["loss"])

    def draw(self, columns: int = 60, rows: int = 12) -> str:
        """A plot in text: the mean loss of equal parts of the run."""
        values = torch.tensor([float(loss) for loss in self.losses])
        means = [part.mean().item() for part in values.tensor_split(min(columns, len(values)))]
        low, high = min(means), max(means)
        levels = [round((mean - low) / ((high - low) or 1) * (rows - 1)) for mean in means]
        lines = []
        for row in reversed(range(rows)):
            label = f"{low + (high - low) * row / (rows - 1):6.2f} |"
            lines.append(label + "".join("*" if level == row else " " for level in levels).rstrip())
        return "\n".join([*lines, " " * 7 + "+" + "-" * len(means), f"{'':8}steps 1 to {len(values)}"])


def loaders(batch_size: int, context: int = 64, validation_windows: int = 256) -> tuple[DataLoader, DataLoader]:
    """The text as windows of bytes, one longer than the context; the last ones are kept for validation."""
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    count = len(text) // (context + 1)
    windows = torch.tensor(list(text[: count * (context + 1)])).view(count, context + 1)
    train, validation = windows[:-validation_windows], windows[-validation_windows:]
    return (
        DataLoader(TensorDataset(train), batch_size=batch_size, shuffle=True),
        DataLoader(TensorDataset(validation), batch_size=batch_size),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16, help="windows of text per core")
    for name, default in vars(Size()).items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    arguments = parser.parse_args()
    size = Size(**{name: getattr(arguments, name) for name in vars(Size())})
    L.seed_everything(0)
    curve = LossCurve()
    trainer = L.Trainer(
        accelerator=arguments.accelerator,
        devices=arguments.devices,
        max_steps=arguments.steps,
        callbacks=[curve],
        log_every_n_steps=10,
    )
    started = time.perf_counter()
    train, validation = loaders(arguments.batch_size, size.context)
    model = ByteGPT(size)
    trainer.fit(model, train)
    print(curve.draw())
    print(f"{arguments.steps} steps in {time.perf_counter() - started:.1f} s, compilation included")
    trainer.validate(model, validation, verbose=False)
    loss = trainer.callback_metrics["val_loss"].item()
    print(f"validation loss: {loss:.3f} nats a byte (untrained: {torch.tensor(256.0).log().item():.3f})")


if __name__ == "__main__":
    main()
