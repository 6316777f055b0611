"""Queues of features behind a pointer (MoCo, NNCLR, SwAV), several in one step: where the pointer wraps, the step asks otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning
from torch import nn

T = torch.Tensor


class Bank(nn.Module):
    """As lightly's memory bank: the pointer is a buffer, whose value decides where the features go."""

    def __init__(self, size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(size)
        self.register_buffer("features", F.normalize(torch.randn(size, 3, generator=generator), dim=-1))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, batch: T) -> None:
        rows, place = batch.shape[0], int(self.pointer)
        if place + rows >= self.features.shape[0]:
            self.features[place:] = batch[: self.features.shape[0] - place].detach()
            self.pointer.zero_()
        else:
            self.features[place : place + rows] = batch.detach()
            self.pointer[0] = place + rows

    def forward(self, batch: T) -> T:
        features = self.features.clone().detach()
        self.enqueue(batch)
        return features


@pytest.mark.parametrize("sizes", [(32,), (32, 32), (40, 48, 40)], ids=str)
def test_banks(sizes: tuple[int, ...]) -> None:
    def prepare(module: Any) -> None:
        module.banks = nn.ModuleList([Bank(size) for size in sizes])

    def training_step(module: Any, batch: Any, i: int) -> T:
        z = module(batch[0])
        return module.loss(batch) + sum((z @ bank(z).T).square().mean() for bank in module.banks)

    def held(module: Any) -> Any:
        return [[int(bank.pointer), bank.features.sum().item()] for bank in module.banks]

    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, epochs=3)
    assert len(module.trainer.compiles) <= 6, [one.reason for one in module.trainer.compiles]
