"""A small network whose ways to run the TPU compiler answers within seconds, and steps of it for plans."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainer.runs import trainer

import systolic as L
from systolic.preflight import Cell, parse_slice
from systolic.trainer.inspection import Subject
from systolic.trainer.inspection._plan import PlannedSteps


class Wide(L.LightningModule):
    """Its hidden layer takes 64 KiB for each sample, and its parameters 16 MiB."""

    def __init__(self, hidden: int = 16_384, blocks: int = 1) -> None:
        super().__init__()
        self.net = nn.Sequential(
            *(nn.Sequential(nn.Linear(128, hidden), nn.ReLU(), nn.Linear(hidden, 128)) for _ in range(blocks))
        )

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.net(batch[0]) - batch[0]).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def loader() -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.rand(64, 128)), batch_size=8)


def steps_of(module: L.LightningModule, **options: Any) -> PlannedSteps:
    return PlannedSteps(Subject.of(trainer(**options), "fit", module, loader()))


def cell(slice: str, strategy: str = "ddp", remat: str = "none", core_batch: int = 1024, accumulation: int = 1) -> Cell:
    return Cell(parse_slice(slice), strategy, remat, core_batch, accumulation)
