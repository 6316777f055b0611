"""Copies of a Trainer, and pickled ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L

Module = regression(
    L.LightningModule,
    validation_step=lambda self, batch, batch_idx: self.log("error", self.loss(batch)),
)
Module.__qualname__, Module.__module__ = "Module", __name__


def through_pickle(trainer: L.Trainer) -> L.Trainer:
    return pickle.loads(pickle.dumps(trainer))


@pytest.mark.parametrize("compile", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, through_pickle])
def test_a_copy_trains_on_like_the_trainer(copied: Callable[[Any], Any], compile: bool, tmp_path: Path) -> None:
    trainer = quiet_trainer(
        compile=compile, logger=L.pytorch.loggers.CSVLogger(tmp_path), enable_progress_bar=True, max_epochs=2
    )
    trainer.fit(Module(), loader(), loader())
    other = copied(trainer)
    assert (other.current_epoch, other.global_step) == (2, 10)
    assert other.callback_metrics == trainer.callback_metrics != {}
    assert other.lightning_module is not trainer.lightning_module
    torch.testing.assert_close(other.lightning_module.state_dict(), trainer.lightning_module.state_dict())
    ends = []
    for one in (trainer, other):
        one.fit_loop.max_epochs = 3
        torch.manual_seed(1)
        one.fit(module := Module(), loader(), loader())
        ends.append((module.state_dict(), one.global_step))
    torch.testing.assert_close(ends[0], ends[1])
    assert ends[0][1] == 15


def test_a_class_says_that_it_optimizes_by_hand() -> None:
    """As an attribute of the class as well as of the object; what it says in the class holds."""

    def scenario(package: Package) -> Any:
        def training_step(self: Any, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

        module = package.module(training_step=training_step, automatic_optimization=False)
        trainer = package.trainer()
        trainer.fit(module, loader())
        return trainer.global_step, module.state_dict(), module.automatic_optimization

    assert require_same(scenario)[0] == 5
