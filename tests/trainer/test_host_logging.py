"""`self.log` in hooks that run on the host: names, reductions, rows and returned values are Lightning's."""

from __future__ import annotations

import csv
import logging
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.three_ways import QUIET, loader, quiet_trainer, regression

import systolic as L


def logging_module(base: Any) -> Any:
    class Logging(regression(base)):
        def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            pass

        def on_train_start(self) -> None:
            self.log("train_start", 1.5)

        def on_train_epoch_start(self) -> None:
            self.log("epoch_start", float(self.current_epoch))

        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.log("batch_start", float(batch_idx))

        def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.log("batch_end", float(batch_idx), on_epoch=True)
            self.log("mean", float(batch_idx), on_step=False, on_epoch=True, prog_bar=True)
            self.log("own_weight", float(batch_idx), on_step=False, on_epoch=True, batch_size=batch_idx + 1)
            for reduction in ("sum", "min", "max"):
                self.log(reduction, float(batch_idx) - 2, on_step=False, on_epoch=True, reduce_fx=reduction)
            self.log("unseen", 1.0, logger=False)

        def on_train_epoch_end(self) -> None:
            self.log("epoch_end", float(self.trainer.callback_metrics["mean"]) + self.current_epoch)

        def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("val_batch_end", float(batch_idx))
            self.log("val_steps", float(batch_idx), on_step=True)

        def on_validation_epoch_end(self) -> None:
            self.log("val_epoch_end", 5.0)

    return Logging()


def outcome(package: Any, loggers: Any, loaders: list[Any], directory: Path) -> dict[str, Any]:
    """Everything that can be seen of the values."""
    torch.manual_seed(0)
    module, logger = logging_module(package.LightningModule), loggers.CSVLogger(directory)
    options = {**QUIET, "accelerator": "cpu", "devices": 1, "max_epochs": 2, "log_every_n_steps": 3, "logger": logger}
    trainer = package.Trainer(**options)
    trainer.fit(module, loader(22), loaders)
    found: dict[str, Any] = {
        "callback_metrics": {k: float(v) for k, v in trainer.callback_metrics.items()},
        "logged_metrics": {k: float(v) for k, v in trainer.logged_metrics.items()},
        "progress_bar_metrics": {k: float(v) for k, v in trainer.progress_bar_metrics.items()},
    }
    again = trainer.validate(module, loaders, verbose=False), trainer.validate(module, loaders, verbose=False)
    found["validate"] = [{k: float(v) for k, v in values.items()} for once in again for values in once]
    [file] = directory.glob("**/metrics.csv")
    found["rows"] = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file.read_text().splitlines())]
    return found


@pytest.mark.parametrize("loaders", [1, 2])
def test_as_lightning(loaders: int, tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    given = [loader(20), loader(10)][:loaders]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = outcome(lightning, import_module("lightning.pytorch.loggers"), given, tmp_path / "lightning")
    got = outcome(L, import_module("systolic.loggers"), given, tmp_path / "systolic")
    for what in ("callback_metrics", "logged_metrics", "progress_bar_metrics"):
        assert got[what].keys() == expected[what].keys(), what
        assert got[what] == pytest.approx(expected[what]), what
    for what in ("validate", "rows"):
        assert len(got[what]) == len(expected[what])
        for number, (row, wanted) in enumerate(zip(got[what], expected[what], strict=True)):
            assert row.keys() == wanted.keys(), f"{what} {number}"
            assert row == pytest.approx(wanted), f"{what} {number}"


def test_a_hook_that_does_not_run_for_each_step_cannot_log_steps() -> None:
    def on_train_epoch_end(self: Any) -> None:
        self.log("value", 1.0, on_step=True)

    module = regression(L.LightningModule, on_train_epoch_end=on_train_epoch_end)()
    with pytest.raises(L.MisconfigurationException, match="on_train_epoch_end, which does not run for each step"):
        quiet_trainer().fit(module, loader())
