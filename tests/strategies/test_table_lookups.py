"""Embedding tables that are split by their features: a step moves the rows that it takes, not the table."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from program_text import collective_sizes, optimized_programs
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import systolic as L
from systolic.strategies import ModelParallel

CORES, WORDS, FEATURES, LENGTH = 8, 512, 64, 6
QUIET: dict[str, Any] = {
    "accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
    "enable_model_summary": False, "advice": False,
}  # fmt: skip


class Words(L.LightningModule):
    """Looks up words and their places, and predicts a number for each text."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(WORDS, FEATURES, **options)
        self.places = nn.Embedding(48, FEATURES)
        self.head = nn.Linear(FEATURES, 1)
        self.seen: list[float] = []

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = self.places(torch.arange(words.shape[-1], device=words.device))
        return self.head(torch.tanh(self.table(words) + places)).squeeze(-1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return (self(batch[0]).mean(-1) - batch[1]).square().mean()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.seen.append(float(outputs["loss"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), 0.02)


class Flat(Words):
    """One word for each sample."""

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.table(words[:, 0]))).expand(-1, 2)


def train(strategy: Any, make: Any, samples: int = 80, **options: Any) -> tuple[Words, list[str]]:
    """Fit on the CPU's cores; also the text of the programs that XLA made."""
    generator = torch.Generator().manual_seed(2)
    data = torch.randint(WORDS, (samples, LENGTH), generator=generator), torch.rand(samples, generator=generator)
    module = make()
    with optimized_programs() as texts:
        trainer = L.Trainer(**{**QUIET, "devices": CORES, "strategy": strategy, "max_epochs": 1, **options})
        # cores that share the work of a layer share their rows, too
        rows = 16 // strategy.mesh(CORES).batch_parts if isinstance(strategy, ModelParallel) else 2
        trainer.fit(module, DataLoader(TensorDataset(*data), batch_size=rows))
    return module, texts


ROWS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "words": ("fsdp", Words, {}),
    "padding": ("fsdp", lambda: Words(padding_idx=3), {}),
    "by frequency": ("fsdp", lambda: Words(scale_grad_by_freq=True), {}),
    "norm": ("fsdp", lambda: Words(max_norm=0.5), {}),
    "one word": ("fsdp", Flat, {}),
    "two groups": ("hsdp", Words, {}),
    "optimizer only": ("ddp_sharded", Words, {}),
    "three axes": (ModelParallel(data=2, fsdp=2, tensor=2, plan={"head": "replicate"}), Words, {}),
    "a table in a plan": (ModelParallel(fsdp=4, tensor=2, plan={"table": "embedding_rowwise"}), Words, {}),
    "accumulation": ("fsdp", Words, {"accumulate_grad_batches": 2}),
    "a batch that does not divide": ("fsdp", Words, {"samples": 75}),
    "half precision": ("fsdp", Words, {"precision": "bf16-mixed"}),
}


# promise 21
@pytest.mark.parametrize(
    "row", [name if name == "words" else pytest.param(name, marks=pytest.mark.tables(every=2)) for name in ROWS]
)
def test_a_split_table_trains_as_a_whole_one(row: str) -> None:
    strategy, make, options = ROWS[row]
    whole, _ = train("ddp", make, **options)
    split, _ = train(strategy, make, **options)
    tolerance = 2e-3 if "precision" in options else 1e-5
    assert split.seen == pytest.approx(whole.seen, rel=tolerance)
    for (name, ours), theirs in zip(split.named_parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=100 * tolerance, atol=10 * tolerance, msg=name)


def test_the_table_is_neither_fetched_nor_summed_whole() -> None:
    _, texts = train("fsdp", Words)
    assert all(WORDS * FEATURES not in collective_sizes(texts, kind) for kind in ("all-gather", "all-reduce", "reduce-scatter"))
    assert collective_sizes(texts, "all-to-all")


def test_more_words_looked_up_than_there_are_fetch_the_table() -> None:
    class Few(Words):
        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return self.head(self.places((words % 48).repeat(1, 8))).squeeze(-1)

    _, texts = train("fsdp", Few)
    assert 48 * FEATURES in collective_sizes(texts, "all-gather")
