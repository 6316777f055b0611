"""What is in the trainer's metrics when a hook looks, compared with Lightning; and that nobody waits who does not look."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L
from systolic.runtime._cells import Cell

METRICS = ("callback_metrics", "logged_metrics", "progress_bar_metrics")


def _numbers(trainer: Any) -> dict[str, dict[str, float]]:
    return {kind: {name: float(value) for name, value in getattr(trainer, kind).items()} for kind in METRICS}


def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("loss", loss, prog_bar=True)
    self.log("both", loss, on_epoch=True, logger=False)
    self.log("epoch", loss, on_step=False, on_epoch=True)
    return loss


def validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    loss = self.loss(batch)
    self.log("val_loss", loss, prog_bar=True)
    self.log("val_both", loss, on_step=True, prog_bar=True)


LOOKS = (
    "on_sanity_check_end", "on_train_start", "on_train_batch_start", "on_train_batch_end", "on_validation_start",
    "on_validation_batch_end", "on_validation_end", "on_train_epoch_end", "on_train_end",
)  # fmt: skip


def test_hooks_see_the_values_of_the_step_that_they_follow() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def looking(name: str) -> Any:
            return lambda self, trainer, *args: seen.append((name, _numbers(trainer)))

        callback = type("Looks", (package.L.Callback,), {name: looking(name) for name in LOOKS})()
        trainer = package.trainer(callbacks=[callback], max_epochs=2)
        module = package.module(training_step=training_step, validation_step=validation_step)
        trainer.fit(module, loader(8), loader(8, seed=2))
        return [*seen, _numbers(trainer)]

    account = require_same(scenario)
    assert account[-1]["logged_metrics"].keys() >= {"loss", "val_both_step"}, "the values of steps are there at the end"
    sanity = next(numbers for name, numbers in account[:-1] if name == "on_train_start")
    assert sanity == {kind: {} for kind in METRICS}, "nothing is left of the sanity check"


def test_checkpoints_between_batches_rank_by_the_step_that_they_save() -> None:
    def scenario(package: Package) -> Any:
        callback = package.checkpoint(monitor="loss", every_n_train_steps=1, save_top_k=2, filename="{step}-{loss:.3f}")
        trainer = package.trainer(enable_checkpointing=True, callbacks=[callback])
        trainer.fit(package.module(training_step=training_step), loader(16))
        kept = {path.rpartition("/")[2]: float(score) for path, score in callback.best_k_models.items()}
        return kept, callback.best_model_path.rpartition("/")[2]

    require_same(scenario)


def test_a_value_logged_after_the_step_stands_over_the_steps_own() -> None:
    def scenario(package: Package) -> Any:
        def on_train_batch_end(self: Any, *args: Any) -> None:
            self.log("loss", 7.0 + args[-1], prog_bar=True)

        module = package.module(training_step=training_step, on_train_batch_end=on_train_batch_end)
        trainer = package.trainer()
        trainer.fit(module, loader(8))
        return float(trainer.callback_metrics["loss"]), trainer.progress_bar_metrics["loss"]

    assert require_same(scenario) == (8.0, 8.0)


@pytest.mark.parametrize("looks", [False, True])
def test_only_who_looks_waits_for_the_step(looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Any] = []
    host = Cell.host
    monkeypatch.setattr(Cell, "host", lambda self: reads.append(self.shape) or host(self))
    read_by_hooks: list[int] = []

    class Looks(L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            before = len(reads)
            if looks:
                assert trainer.callback_metrics["loss"] > 0
            read_by_hooks.append(len(reads) - before)

    trainer = quiet_trainer(callbacks=[Looks()], log_every_n_steps=1000)
    trainer.run.reporting._bar_due = float("inf")
    trainer.fit(regression(L.LightningModule, training_step=training_step)(), loader())
    assert all(count > 0 for count in read_by_hooks) if looks else not any(read_by_hooks)
