"""Bars of one's own, written by the members that Lightning's have: what they ask, and what they draw, is the same."""

from __future__ import annotations

from typing import Any, cast

import pytest
from callbacks.fake_trainer import FakeTrainer
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

from systolic import LightningModule
from systolic.callbacks import ProgressBar, TQDMProgressBar

pytest.importorskip("tqdm")


def evaluating(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    """Nothing."""


STEPS = {"validation_step": evaluating, "test_step": evaluating, "predict_step": evaluating}


def test_the_loader_that_an_evaluation_has_come_to() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def starting(kind: str) -> Any:
            def start(self: Any, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
                if self.has_dataloader_changed(dataloader_idx):
                    total = getattr(self, f"total_{kind}_batches_current_dataloader")
                    seen.append([kind, batch_idx, dataloader_idx, total, trainer.sanity_checking])

            return start

        def ending(self: Any, *args: Any) -> None:
            self.reset_dataloader_idx_tracker()

        kinds = {"val": "validation", "test": "test", "predict": "predict"}
        methods = {f"on_{name}_batch_start": starting(kind) for kind, name in kinds.items()}
        ends = {f"on_{name}_end": ending for name in kinds.values()}
        switches = {"enable": lambda self: None, "disable": lambda self: None}
        bar = type("Own", (package.L.callbacks.ProgressBar,), {**methods, **ends, **switches})()
        trainer = package.trainer(callbacks=[bar], enable_progress_bar=True, max_epochs=2, num_sanity_val_steps=1)
        module, several = package.module(**STEPS), [loader(), loader(8)]
        trainer.fit(module, loader(), several)
        trainer.test(module, several, verbose=False)
        trainer.predict(module, several)
        return seen

    seen = require_same(scenario)
    assert [row[1:4] for row in seen[:2]] == [[0, 0, 1], [0, 1, 1]]
    assert len(seen) == 10


def test_it_has_to_be_told_the_loader() -> None:
    bar = ProgressBar()
    bar.setup(cast("Any", FakeTrainer()), LightningModule(), "fit")
    with pytest.raises(TypeError, match="has_dataloader_changed"):
        _ = bar.total_val_batches_current_dataloader
    assert bar.has_dataloader_changed(0)
    assert bar.total_val_batches_current_dataloader == 2


def drawn(package: Package, methods: dict[str, Any], **arguments: Any) -> Any:
    """What tqdm's bars of training and validation have counted to at the end of each validation and epoch."""
    seen: list[Any] = []

    class Notes(package.L.Callback):
        def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
            if args[-1]:  # of the second loader
                seen.append(["validation", bar.val_progress_bar.n, bar.val_progress_bar.total])

        def on_train_epoch_end(self, trainer: Any, *args: Any) -> None:
            seen.append(["epoch", bar.train_progress_bar.n, bar.train_progress_bar.total])

    bar = type("Own", (package.L.callbacks.TQDMProgressBar,), methods)(**arguments)
    trainer = package.trainer(callbacks=[bar, Notes()], enable_progress_bar=True, max_epochs=2, num_sanity_val_steps=0)
    trainer.fit(package.module(**STEPS), loader(), [loader(), loader(8)])
    return seen


@pytest.mark.parametrize("every", [1, 2])
def test_a_bar_that_counts_all_steps(every: int) -> None:
    def on_train_batch_end(self: Any, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        done = trainer.global_step
        if self._should_update(done, self.train_progress_bar.total):
            self.train_progress_bar.n = done
            self.train_progress_bar.refresh()

    methods = {"on_train_batch_end": on_train_batch_end}

    def scenario(package: Package) -> Any:
        return [row for row in drawn(package, methods, refresh_rate=every) if row[0] == "epoch"]

    assert require_same(scenario) == [["epoch", 5, 5], ["epoch", 10, 5]]


def test_a_bar_that_adds_to_what_is_drawn() -> None:
    def scenario(package: Package) -> Any:
        def on_train_batch_end(self: Any, trainer: Any, *args: Any) -> None:
            package.L.callbacks.TQDMProgressBar.on_train_batch_end(self, trainer, *args)
            self.train_progress_bar.set_postfix({"step": trainer.global_step})

        return [row for row in drawn(package, {"on_train_batch_end": on_train_batch_end}) if row[0] == "epoch"]

    assert require_same(scenario) == [["epoch", 5, 5], ["epoch", 5, 5]]


def test_a_bar_that_begins_the_next_loader_by_itself() -> None:
    def on_validation_batch_start(
        self: Any, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self.has_dataloader_changed(dataloader_idx):
            self.val_progress_bar.reset()
            self.val_progress_bar.total = self.total_val_batches_current_dataloader
            self.val_progress_bar.set_description(f"loader {dataloader_idx}")

    def on_validation_batch_end(
        self: Any, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        if self._should_update(batch_idx + 1, self.val_progress_bar.total):
            self.val_progress_bar.n = batch_idx + 1

    methods = {"on_validation_batch_start": on_validation_batch_start, "on_validation_batch_end": on_validation_batch_end}
    require_same(lambda package: drawn(package, methods))


@pytest.mark.parametrize(("current", "total", "due"), [(1, 3, False), (2, 3, True), (3, 3, True), (3, None, False)])
def test_when_it_is_time(current: int, total: int | None, due: bool) -> None:
    bar = TQDMProgressBar(refresh_rate=2)
    assert bar._should_update(current, total) == due
    bar.disable()
    assert not bar._should_update(current, total)
