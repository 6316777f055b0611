"""Hooks that change the data between the batches, a curriculum or a replay buffer: as under Lightning from the next batch on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from as_lightning import Package, require_same
from beside_lightning import trainer_of
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

import systolic

T = torch.Tensor


class Rows(Dataset[T]):
    def __init__(self, settings: dict[str, float]) -> None:
        self.difficulty, self.settings, self.threads = 0.0, settings, set[str]()

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> T:
        self.threads.add(threading.current_thread().name)
        return torch.ones(4) * (1 + index % 5) * (1 + self.difficulty + self.settings["noise"])


class Replay(IterableDataset[T]):
    def __init__(self, buffer: deque[T]) -> None:
        self.buffer = buffer

    def __iter__(self) -> Iterator[T]:
        for number in range(32):
            yield self.buffer[-1 - number % 3]


def by_trainer(module: Any, i: int) -> None:
    module.trainer.train_dataloader.dataset.difficulty += 0.1


def by_wrapped(module: Any, i: int) -> None:
    if module.trainer.global_step == 3:
        module.trainer.train_dataloader.dataset.dataset.difficulty = 2.0


def by_attribute(module: Any, i: int) -> None:
    module.rows.difficulty += 0.1 * i


def by_settings(module: Any, i: int) -> None:
    module.settings["noise"] += 0.1


def by_buffer(module: Any, i: int) -> None:
    module.buffer.append(torch.ones(4) * i)


def nothing(module: Any, i: int) -> None:
    assert len(module.trainer.train_dataloader) == 8


def fitted(package: Package, hook: str, change: Callable[[Any, int], None], threads: set[str] | None = None) -> Any:
    class Curriculum(package.L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Linear(4, 1)
            self.__dict__.update(settings={"noise": 0.0}, buffer=deque([torch.ones(4)] * 3), seen=[])
            self.__dict__["rows"] = Rows(self.settings)

        def training_step(self, batch: T, i: int) -> T:
            return self.net(batch).pow(2).mean()

        def train_dataloader(self) -> Any:
            if change is by_buffer:
                return DataLoader(Replay(self.buffer), 4)
            return DataLoader(Subset(self.rows, range(32)) if change is by_wrapped else self.rows, 4)

        def validation_step(self, batch: T, i: int) -> None:
            self.log("v", self.net(batch).mean())

        def val_dataloader(self) -> Any:
            return DataLoader(self.rows, 16)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-3)

    def changes(module: Any, outputs: Any, batch: T, i: int) -> None:
        module.seen.append(batch.sum())
        change(module, i)

    def starts(module: Any, batch: T, i: int) -> None:
        module.seen.append(batch.sum())
        change(module, i)

    def ended(module: Any) -> None:
        change(module, 3)

    hooks = {"on_train_batch_end": changes, "on_train_batch_start": starts, "on_validation_epoch_end": ended}
    setattr(Curriculum, hook, hooks[hook])
    module = Curriculum()
    trainer = package.trainer(max_epochs=2, val_check_interval=3, num_sanity_val_steps=0)
    trainer.fit(module)
    return module.seen, module.net.weight.detach().clone(), trainer.callback_metrics["v"]


@pytest.mark.parametrize("change", [by_trainer, by_wrapped, by_attribute, by_settings, by_buffer])
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_train_batch_start", "on_validation_epoch_end"])
def test_the_next_batch_is_of_the_changed_data(hook: str, change: Callable[[Any, int], None]) -> None:
    require_same(lambda package: fitted(package, hook, change), ("lightning", "compiled"))


class Other(systolic.LightningModule):
    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.net, self.rows = nn.Linear(4, 1), rows

    def training_step(self, batch: T, i: int) -> T:
        return self.net(batch).pow(2).mean()

    def on_train_epoch_start(self) -> None:
        self.rows.difficulty += 1  # no batch of the epoch is read yet

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, 4)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        nothing(self, batch_idx)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


def test_with_other_hooks_batches_are_read_ahead() -> None:
    rows = Rows({"noise": 0.0})
    trainer_of(systolic, max_epochs=2).fit(Other(rows))
    assert "systolic-prefetch" in rows.threads
