"""What a run leaves alone or finds around it: random generators, directories; compared with Lightning."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, samples

import systolic as L


def _draws(self: Any, *args: Any) -> None:
    self.log("drawn", torch.rand(()).item() + random.random() + np.random.rand())


def test_the_sanity_check_draws_no_numbers_of_the_users() -> None:
    def scenario(package: Package) -> Any:
        found = []
        for steps in (0, 2):
            drawn: list[Any] = []

            class Draws(package.L.Callback):
                def on_train_start(self, *args: Any, drawn: list[Any] = drawn) -> None:
                    drawn.extend([torch.rand(()).item(), random.random(), np.random.rand()])

            module = package.module(validation_step=lambda *args: None, on_validation_batch_start=_draws)
            random.seed(1)
            np.random.seed(1)
            train = DataLoader(samples(16), batch_size=4, shuffle=True)
            trainer = package.trainer(num_sanity_val_steps=steps, callbacks=[Draws()])
            trainer.fit(module, train, DataLoader(samples(8), batch_size=4, shuffle=True))
            found.append((drawn, module.second.weight.detach()))
        (drawn, weight), (drawn_after, weight_after) = found
        return drawn == drawn_after, torch.equal(weight, weight_after), drawn[1:]

    assert require_same(scenario)[:2] == (True, True)


def test_the_sanity_check_draws_no_numbers_of_the_devices() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        return self.loss([torch.nn.functional.dropout(batch[0], 0.5), batch[1]])

    def scenario(package: Package, steps: int) -> torch.Tensor:
        module = package.module(training_step=training_step, validation_step=_noisy)
        package.trainer(num_sanity_val_steps=steps).fit(module, loader(8), loader(8))
        return module.second.weight.detach()

    package = Package("compiled", L, Path("."))
    assert torch.equal(scenario(package, 0), scenario(package, 2))


def _noisy(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", torch.randn(4).mean())


def test_a_second_fit_does_not_draw_the_numbers_of_the_first_again() -> None:
    """A step whose loss is a mask's sum: equal in both fits if the masks are."""

    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        mask = torch.nn.functional.dropout(torch.ones(64), 0.5)
        self.log("mask", (mask * torch.arange(64)).sum())
        return self.loss(batch)

    package = Package("compiled", L, Path("."))
    module, trainer = package.module(training_step=training_step), package.trainer()
    trainer.fit(module, loader(4))
    first = trainer.callback_metrics["mask"].item()
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, loader(4))
    assert trainer.callback_metrics["mask"].item() != first


def test_the_home_directory_may_be_written_as_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    def scenario(package: Package) -> Any:
        paths = ("~/runs/", Path("~/runs"), "runs/../other", "memory://bucket/run")
        return [package.trainer(default_root_dir=path).default_root_dir for path in paths]

    assert require_same(scenario, ("lightning", "eager"))[:2] == [str(tmp_path / "runs")] * 2


def test_log_dir_is_where_the_first_logger_writes() -> None:
    def scenario(package: Package) -> Any:
        base = package.L.loggers.logger.Logger if package.kind == "lightning" else package.L.loggers.Logger
        methods = {"log_metrics": lambda *a, **k: None, "log_hyperparams": lambda *a, **k: None, "name": "n", "version": "v"}
        bare = type("Bare", (base,), methods)()
        saving = type("Saving", (base,), {**methods, "save_dir": "somewhere"})()
        own = type("Own", (base,), {**methods, "save_dir": "somewhere", "log_dir": "elsewhere"})()
        csv = package.L.loggers.CSVLogger("logs", name="n", version=3)
        loggers = [False, bare, saving, own, csv, [saving, csv]]
        found = [package.trainer(logger=logger, default_root_dir="root").log_dir for logger in loggers]
        return [None if directory is None else str(directory) for directory in found]

    assert require_same(scenario, ("lightning", "eager")) == [
        "root",
        None,
        "somewhere",
        "somewhere",
        "logs/n/version_3",
        "somewhere",
    ]


def test_the_run_works_in_the_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    trainer = quiet_trainer(compile=False, default_root_dir="~/runs", enable_checkpointing=True)
    trainer.fit(Package("eager", L, tmp_path).module(), loader(4))
    assert [path.name for path in (tmp_path / "runs" / "checkpoints").iterdir()] == ["epoch=0-step=1.ckpt"]
