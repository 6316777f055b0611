"""Learn the paragraphs of Python's documentation, each as long as it is, byte by byte: buckets, masks, one program for each.

$ python examples/ragged.py --accelerator cpu --devices 2
2282 paragraphs; padding 31% of the batches (with one length: 71%)
8 programs for training and validation; validation loss 2.41
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import systolic as L
from systolic.data import BucketBatchSampler, PadCollate, masked_mean

BUCKETS = [64, 128, 256, 512]


def paragraphs() -> list[dict[str, torch.Tensor]]:
    """The bytes of every paragraph that fits into the largest bucket."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    encoded = [paragraph.strip().encode() for paragraph in text.split("\n\n")]
    return [{"ids": torch.tensor(list(one))} for one in encoded if 16 <= len(one) <= BUCKETS[-1]]


class NextByte(L.LightningModule):
    """A layer of causal attention. A byte sees those before it, so padding behind the text changes nothing but the mean."""

    def __init__(self, width: int = 64, lr: float = 3e-3) -> None:
        super().__init__()
        self.lr = lr
        self.embed = nn.Embedding(256, width)
        self.places = nn.Embedding(BUCKETS[-1], width)
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.head = nn.Linear(width, 256)

    def loss(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        ids, following = batch["ids"][:, :-1], batch["ids"][:, 1:]
        x = self.embed(ids) + self.places.weight[: ids.shape[1]]
        x = x + F.scaled_dot_product_attention(*self.qkv(self.norm(x)).chunk(3, -1), is_causal=True)
        logits = self.head(x + self.mlp(x))
        return masked_mean(F.cross_entropy(logits.transpose(1, 2), following, reduction="none"), batch["mask"][:, 1:])

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), batch_size=len(batch["ids"]), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


def loader(samples: list[dict[str, torch.Tensor]], batch_size: int, shuffle: bool) -> DataLoader:
    """Batches of one bucket each; what does not fill a batch is left out of training, and evaluated."""
    lengths = [len(sample["ids"]) for sample in samples]
    sampler = BucketBatchSampler(lengths, batch_size, BUCKETS, shuffle=shuffle, drop_last=shuffle)
    return DataLoader(samples, batch_sampler=sampler, collate_fn=PadCollate(BUCKETS, pad_value={"ids": 0}))


def padding(batches: DataLoader) -> float:
    """Which part of all places in the batches is padding."""
    masks = [batch["mask"] for batch in batches]
    return 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--batch-size", type=int, default=8, help="paragraphs per core")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--width", type=int, default=64)
    options = parser.parse_args(words)
    L.seed_everything(0)
    samples = paragraphs()
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(0)).tolist()
    kept = len(samples) // 5
    validation, train = ([samples[index] for index in part] for part in (order[:kept], order[kept:]))
    trainer = L.Trainer(
        accelerator=options.accelerator,
        devices=options.devices,
        max_epochs=options.epochs,
        log_every_n_steps=10,
        pad_batches=True,
    )
    batches = loader(train, options.batch_size, shuffle=True)
    trainer.fit(NextByte(options.width), batches, loader(validation, options.batch_size, shuffle=False))
    one_length = 1 - sum(len(sample["ids"]) for sample in train) / (len(train) * BUCKETS[-1])
    print(f"{len(samples)} paragraphs; padding {padding(batches):.0%} of the batches (with one length: {one_length:.0%})")
    programs = sum(compiled.is_new_executable for compiled in trainer.compiles)
    print(f"{programs} programs for training and validation; validation loss {trainer.callback_metrics['val_loss']:.2f}")


if __name__ == "__main__":
    main()
