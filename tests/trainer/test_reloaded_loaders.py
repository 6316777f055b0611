"""Loaders that are asked for again: the same samples in the same order as under Lightning, which begins a pass with each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from as_lightning import Package, require_same
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

T = torch.Tensor


class Drawn(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for _ in range(20):
            yield (torch.rand(1),)


def rows(count: int) -> TensorDataset:
    return TensorDataset(torch.arange(float(count))[:, None] / count)


def fitted(package: Package, training: Any, every: int, validates: bool, workers: int, again: bool = False) -> Any:
    seen: list[Any] = []

    def noted(name: str, batch: Any) -> None:
        parts = list(batch.values()) if isinstance(batch, dict) else [batch]
        seen.append((name, [part[0].flatten().tolist() for part in parts]))

    class Noting(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Linear(1, 1)

        def training_step(self, batch: Any, i: int) -> T:
            parts = list(batch.values()) if isinstance(batch, dict) else [batch]
            return sum((self.net(part[0]).pow(2).mean() for part in parts), torch.zeros(()))

        def on_train_batch_end(self, outputs: Any, batch: Any, i: int) -> None:
            noted("train", batch)

        def on_validation_batch_end(self, outputs: Any, batch: Any, i: int) -> None:
            noted("validate", batch)

        def train_dataloader(self) -> Any:
            return training(workers)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    def val_dataloader(self: Any) -> Any:
        return DataLoader(rows(8), 4, shuffle=True, num_workers=workers)

    if validates:
        Noting.validation_step = lambda self, batch, i: self.log("v", self.net(batch[0]).sum())
        Noting.val_dataloader = val_dataloader
    module = Noting()
    trainer = package.trainer(max_epochs=3, reload_dataloaders_every_n_epochs=every, num_sanity_val_steps=int(again))
    torch.manual_seed(1)
    trainer.fit(module)
    if again:
        trainer.fit_loop.max_epochs = 5
        trainer.fit(module)
    return seen, module.net.weight.detach().clone(), torch.rand(2)


LOADERS = {
    "shuffled": lambda workers: DataLoader(rows(24), 8, shuffle=True, num_workers=workers),
    "persistent": lambda workers: DataLoader(rows(24), 8, shuffle=True, num_workers=1, persistent_workers=True),
    "own generator": lambda workers: DataLoader(rows(24), 8, shuffle=True, generator=torch.Generator().manual_seed(3)),
    "stream": lambda workers: DataLoader(Drawn(), 8, num_workers=workers),
    "two": lambda workers: {"a": DataLoader(rows(24), 8, shuffle=True), "b": DataLoader(rows(16), 8, shuffle=True)},
}


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("every", [1, 2])
def test_shuffled_loaders_come_in_the_same_order(every: int, validates: bool) -> None:
    found = require_same(lambda package: fitted(package, LOADERS["shuffled"], every, validates, 0))
    orders = [batches for name, batches in found[0] if name == "train"]
    assert len(orders) == 9
    assert orders[:3] != orders[3:6] != orders[6:]


@pytest.mark.parametrize("every", [1, 2])
def test_shuffled_loaders_with_workers_come_in_the_same_order(every: int) -> None:
    require_same(lambda package: fitted(package, LOADERS["shuffled"], every, True, 2), ("lightning", "compiled"))


@pytest.mark.parametrize("name", ["persistent", "own generator", "stream", "two"])
def test_other_loaders_come_in_the_same_order(name: str) -> None:
    require_same(lambda package: fitted(package, LOADERS[name], 1, True, 0), ("lightning", "compiled"))


@pytest.mark.parametrize("every", [0, 1])
@pytest.mark.parametrize("name", ["shuffled", "stream"])
def test_a_second_fit_goes_on_in_the_same_order(name: str, every: int) -> None:
    require_same(lambda package: fitted(package, LOADERS[name], every, True, 0, again=True))
