"""Counters of the loops that public code reads, and the logger's step, which it sets, are Lightning's at every moment."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

import systolic
from systolic.compiler import CaptureError

MOMENTS = [
    "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end", "on_validation_start",
    "on_validation_end", "on_train_epoch_end", "on_train_end",
]  # fmt: skip


def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("loss", loss, on_step=True, on_epoch=True)
    return loss


def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def by_hand(self: Any, batch: Any, batch_idx: int) -> None:
    first, second = self.optimizers()
    for optimizer in (first, second):
        optimizer.zero_grad()
        loss = self.loss(batch)
        self.manual_backward(loss)
        optimizer.step()
    self.log("loss", loss)


def two_optimizers(self: Any) -> Any:
    return [torch.optim.SGD(self.first.parameters(), 0.1), torch.optim.SGD(self.second.parameters(), 0.1)]


def recorder_of(package: Package) -> Any:
    """A logger that keeps names and steps."""

    class Recorder(package.L.loggers.Logger):
        name, version = "recorder", 0

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[Any] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.rows.append([step, sorted(set(metrics) - {"epoch"})])

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            """Nothing."""

    return Recorder()


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("window", [1, 2])
def test_the_step_of_loggers_is_set(moment: str, window: int) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def jumping(self: Any, trainer: Any, *args: Any, **kwargs: Any) -> None:
            loop = trainer.fit_loop.epoch_loop
            loop._batches_that_stepped += 10
            seen.append(loop._batches_that_stepped)

        recorder = recorder_of(package)
        trainer = package.trainer(
            callbacks=[type("Jumps", (package.L.Callback,), {moment: jumping})()], logger=recorder, max_epochs=2,
            log_every_n_steps=1, val_check_interval=2, num_sanity_val_steps=0, accumulate_grad_batches=window,
        )  # fmt: skip
        module = package.module(training_step=training_step, validation_step=validation_step)
        trainer.fit(module, loader(), loader(8))
        trainer.save_checkpoint(package.path / "a.ckpt")
        return seen, recorder.rows, trainer.fit_loop.epoch_loop._batches_that_stepped

    seen, rows, _ = require_same(scenario)
    assert seen[0] >= 10
    assert moment == "on_train_end" or rows[-1][0] > 10


@pytest.mark.parametrize("automatic", [True, False])
def test_counters_of_the_optimizers(automatic: bool) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def note(trainer: Any, moment: str) -> None:
            loop = trainer.fit_loop.epoch_loop
            optimizer = loop.automatic_optimization.optim_progress.optimizer
            hand = loop.manual_optimization.optim_step_progress
            seen.append([moment, loop.global_step, loop.min_steps, loop.max_steps, loop._batches_that_stepped])
            seen.append([loop.automatic_optimization.optim_progress.optimizer_steps, hand.total.completed, hand.total.ready])
            for progress in (optimizer.step, optimizer.zero_grad):
                # Lightning's still counts the epoch before while on_train_epoch_start runs
                current = None if moment == "on_train_epoch_start" else progress.current.completed
                seen.append([progress.total.ready, progress.total.completed, current])

        def noting(moment: str) -> Any:
            return lambda self, trainer, *args, **kwargs: note(trainer, moment)

        methods = {moment: noting(moment) for moment in MOMENTS}
        trainer = package.trainer(
            callbacks=[type("Notes", (package.L.Callback,), methods)()], max_epochs=2, min_steps=3, val_check_interval=2,
            num_sanity_val_steps=0, accumulate_grad_batches=2 if automatic else 1,
        )  # fmt: skip
        own = {"training_step": training_step} if automatic else {
            "training_step": by_hand, "configure_optimizers": two_optimizers, "automatic_optimization": False
        }  # fmt: skip
        trainer.fit(package.module(validation_step=validation_step, **own), loader(), loader(8))
        note(trainer, "after")
        return seen

    seen = require_same(scenario)
    assert seen[-3][0 if automatic else 1] > 2


def test_the_step_cannot_set_it(tmp_path: Any) -> None:
    def setting(self: Any, batch: Any, batch_idx: int) -> Any:
        self.trainer.fit_loop.epoch_loop._batches_that_stepped = 7
        return self.loss(batch)

    package = Package("compiled", systolic, tmp_path)
    with pytest.raises(CaptureError, match="_batches_that_stepped"):
        package.trainer().fit(package.module(training_step=setting), loader())


def test_the_order_of_callbacks() -> None:
    def scenario(package: Package) -> Any:
        callbacks = package.L.callbacks
        given = [callbacks.ModelCheckpoint(), callbacks.Timer(), callbacks.LearningRateFinder(), callbacks.EarlyStopping("v")]
        ordered = package.trainer()._callback_connector._reorder_callbacks(given)
        return [type(one).__name__ for one in ordered]

    assert require_same(scenario) == ["LearningRateFinder", "Timer", "EarlyStopping", "ModelCheckpoint"]


def test_a_callback_that_was_appended_gets_self_log() -> None:
    def scenario(package: Package) -> Any:
        late = package.L.Callback()

        class First(package.L.Callback):
            def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
                trainer.callbacks.append(late)
                trainer._callback_connector._attach_model_logging_functions()
                late.log("x", 3.0)

        trainer = package.trainer(callbacks=[First()])
        trainer.fit(package.module(), loader(8))
        return float(trainer.callback_metrics["x"])

    assert require_same(scenario) == 3.0
