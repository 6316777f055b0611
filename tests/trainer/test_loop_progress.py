"""Progress of the loops by the names under which Lightning's callbacks read it."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def validating(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
    self.log("val_loss", self.loss(batch))


def counts(progress: Any) -> dict[str, list[int]]:
    """Numbers of a progress of batches."""
    return {
        name: [one.ready, one.started, one.processed, one.completed]
        for name, one in (("total", progress.total), ("current", progress.current))
    }


def noting(package: Package, seen: list[Any]) -> Any:
    """A callback that notes the progress in the hooks after a batch, after validation and after the epoch."""

    class Noting(package.L.Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            loop = trainer.fit_loop.epoch_loop
            seen.append(["batch", loop.batch_idx, loop.total_batch_idx, loop.batch_progress.is_last_batch])
            seen.append(counts(loop.batch_progress))

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            loop = trainer.fit_loop
            seen.append(["epoch", loop.epoch_progress.current.ready, loop.epoch_progress.current.completed])
            seen.append(counts(loop.epoch_loop.val_loop.batch_progress))

    return Noting()


@pytest.mark.parametrize("options", [{}, {"val_check_interval": 2, "accumulate_grad_batches": 2}], ids=str)
def test_progress_is_lightnings(options: dict[str, Any]) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        trainer = package.trainer(max_epochs=2, callbacks=[noting(package, seen)], **options)
        trainer.fit(package.module(validation_step=validating), loader(), [loader(), loader(8)])
        account = trainer.fit_loop.state_dict()
        after = {
            name: account[name]["total"]
            for name in ("epoch_loop.batch_progress", "epoch_loop.val_loop.batch_progress", "epoch_loop.scheduler_progress")
        }
        return seen, after, trainer.fit_loop.epoch_loop.scheduler_progress.total.completed

    assert require_same(scenario)[0][0] == ["batch", 0, 0, False]


def test_setup_and_teardown_get_the_stage_as_an_enum() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class Staged(package.L.Callback):
            def setup(self, trainer: Any, pl_module: Any, stage: Any) -> None:
                seen.append(("callback", stage.value, stage == "fit"))

        def setup(self: Any, stage: Any) -> None:
            self.stage = stage
            seen.append(("setup", stage.value, stage.name, stage == "fit"))

        def teardown(self: Any, stage: Any) -> None:
            seen.append(("teardown", stage.value, stage.name))

        module = package.module(setup=setup, teardown=teardown, test_step=validating)
        trainer = package.trainer(callbacks=[Staged()])
        trainer.fit(module, loader())
        trainer.test(module, loader(), verbose=False)
        return seen

    assert require_same(scenario)[1] == ("setup", "fit", "FITTING", True)
