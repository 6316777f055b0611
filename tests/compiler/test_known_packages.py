"""Packages that note which kinds of tensors they have met do not make a step be traced again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import systolic

einops = pytest.importorskip("einops")


class Transposing(systolic.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        halves = einops.rearrange(self.layer(batch), "b (two half) -> two b half", two=2)
        return einops.reduce(halves.square(), "two b half -> ", "mean")

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_einops_is_traced_once() -> None:
    options: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = systolic.Trainer(accelerator="cpu", devices=1, max_epochs=2, enable_model_summary=False, **options)
    trainer.fit(Transposing(), torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=4))  # pyright: ignore[reportArgumentType]
    assert [compiled.reason for compiled in trainer.compiles] == ["first call"]
