"""Several updates in one training step, with a scheduler's steps between them: each takes the number that is set by then."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset


def _step(self: Any, batch: Any, i: int) -> None:
    optimizer, scheduler = self.optimizers(), self.lr_schedulers()
    for _ in range(3):
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()
        scheduler.step()


def _exponential(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), 0.5, momentum=0.5)
    return [optimizer], [lr_scheduler.ExponentialLR(optimizer, 0.7)]


def _one_after_another(self: Any) -> Any:
    groups = [{"params": self.inner.parameters(), "lr": 0.02}, {"params": self.outer.parameters()}]
    optimizer = torch.optim.AdamW(groups, 0.01)
    warm = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
    return [optimizer], [lr_scheduler.SequentialLR(optimizer, [warm, lr_scheduler.StepLR(optimizer, 2, 0.5)], [4])]


def _one_cycle(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
    return [optimizer], [lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=40)]


def _manual(module: Any) -> None:
    module.automatic_optimization = False


def _held(module: Any) -> Any:
    scheduler = module.lr_schedulers()
    return [[g["lr"] for g in module.optimizers().param_groups], scheduler.last_epoch, scheduler.get_last_lr()]


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("optimizers", [_exponential, _one_after_another, _one_cycle])
def test_each_update_equals_lightnings(optimizers: Any, devices: int) -> None:
    methods = {"training_step": _step, "configure_optimizers": optimizers}
    module = beside_lightning(methods, _held, prepare=_manual, devices=devices)
    assert len(module.trainer.compiles) == 2  # the first step finds no gradients, and leaves some


def _changes_the_rate_itself(self: Any, batch: Any, i: int) -> None:
    for _ in range(2):
        _step(self, batch, i)
        for group in self.optimizers().param_groups:
            group["lr"] = group["lr"] * 0.9


def _warms_up_itself(self: Any, batch: Any, i: int) -> None:
    for group in self.optimizers().param_groups:
        group["lr"] = 0.01 * (i + 1)
    _step(self, batch, i)


def _once(self: Any, batch: Any, i: int) -> None:
    for group in self.optimizers().param_groups:
        group["lr"] = group["lr"] * (1 + i) / 2
    optimizer = self.optimizers()
    optimizer.zero_grad()
    self.manual_backward(self.loss(batch))
    optimizer.step()
    self.lr_schedulers().step()


def _sets_it_last(self: Any, batch: Any, i: int) -> None:
    _once(self, batch, i)
    for group in self.optimizers().param_groups:
        group["lr"] = max(group["lr"], 0.02)


def _manual_in_float64(module: Any) -> None:
    _manual(module)
    module.double()  # Adam's first updates are as large as the rate, whatever is in a gradient: rounding would be, too


def _rows_in_float64(count: int, seed: int, batch_size: int) -> DataLoader[Any]:
    x, y = loader(count, seed).dataset.tensors
    return DataLoader(TensorDataset(x.double(), y), batch_size=batch_size)


@pytest.mark.parametrize("optimizers", [_exponential, _one_after_another, _one_cycle])
@pytest.mark.parametrize("step", [_changes_the_rate_itself, _warms_up_itself, _once, _sets_it_last])
def test_a_step_that_sets_the_rate_itself(step: Any, optimizers: Any) -> None:
    methods = {"training_step": step, "configure_optimizers": optimizers}
    beside_lightning(methods, _held, prepare=_manual_in_float64, data=_rows_in_float64)
