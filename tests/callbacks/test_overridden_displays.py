"""Subclasses of LearningRateMonitor and ModelSummary override and call the methods that Lightning's have, to the same effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer
from torch import nn
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def recorder_of(package: Package) -> Any:
    """A logger that keeps what it gets."""

    class Recorder(package.L.loggers.Logger):
        name, version = "recorder", 0

        def __init__(self) -> None:
            super().__init__()
            self.rows: list[Any] = []

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            self.rows.append([step, {name: value for name, value in metrics.items() if name != "epoch"}])

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            """Nothing."""

    return Recorder()


def optimizers(module: nn.Module) -> Any:
    first, second = torch.optim.Adam(module.parameters(), 0.01), torch.optim.SGD(module.parameters(), 0.5, momentum=0.25)
    return [first, second], [torch.optim.lr_scheduler.StepLR(first, 1, 0.5)]


def logged(package: Package, subclass: type, **arguments: Any) -> Any:
    """What a monitor logs in three epochs of two steps, and what it holds; the module trains by hand, with two optimizers."""

    def training_step(module: Any, batch: Any, batch_idx: int) -> None:
        for optimizer in module.optimizers():
            optimizer.zero_grad()
            module.manual_backward(module(batch[0]).square().mean())
            optimizer.step()

    def on_train_epoch_end(module: Any) -> None:
        module.lr_schedulers().step()

    module = package.module(
        training_step=training_step, configure_optimizers=optimizers, on_train_epoch_end=on_train_epoch_end,
        automatic_optimization=False,
    )  # fmt: skip
    callback, recorder = subclass(**arguments), recorder_of(package)
    trainer = package.trainer(logger=recorder, max_epochs=3, callbacks=[callback], log_every_n_steps=1)
    trainer.fit(module, loader(16, 8))
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if "lr" in name or "SGD" in name}
    return [recorder.rows, callback.lrs, metrics, getattr(callback, "seen", None), trainer.current_epoch]


@pytest.mark.parametrize("interval", [None, "step", "epoch"])
def test_another_learning_rate(interval: str | None) -> None:
    def scenario(package: Package) -> Any:
        class Scaled(package.L.callbacks.LearningRateMonitor):
            def _extract_lr(self, param_group: dict[str, Any], name: str) -> dict[str, Any]:
                found = super()._extract_lr(param_group, name)
                return {**found, f"{name}-scaled": param_group["lr"] * 1000}

            def _extract_momentum(self, param_group: dict[str, Any], name: str, use_betas: bool) -> dict[str, float]:
                self.seen = [*getattr(self, "seen", []), name, use_betas]
                return super()._extract_momentum(param_group, name, use_betas)

        return logged(package, Scaled, logging_interval=interval, log_momentum=True, log_weight_decay=True)

    rows, lrs, *_ = require_same(scenario)
    assert rows
    assert lrs["lr-Adam"][0] == 0.01


def test_other_names() -> None:
    def scenario(package: Package) -> Any:
        class Renamed(package.L.callbacks.LearningRateMonitor):
            def _find_names_from_schedulers(self, lr_scheduler_configs: Any) -> Any:
                names, *rest = super()._find_names_from_schedulers(lr_scheduler_configs)
                return [[name.replace("lr-", "rate/") for name in one] for one in names], *rest

            def _get_optimizer_stats(self, optimizer: Any, names: list[str]) -> dict[str, float]:
                found = super()._get_optimizer_stats(optimizer, names)
                return {**found, f"{names[0]}-groups": float(len(optimizer.param_groups))}

        return logged(package, Renamed, logging_interval="epoch")

    _, lrs, *_ = require_same(scenario)
    assert list(lrs) == ["rate/Adam", "lr-SGD"]


def test_a_hook_of_its_own_extracts_them() -> None:
    def scenario(package: Package) -> Any:
        class Stops(package.L.callbacks.LearningRateMonitor):
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                stats = self._extract_stats(trainer, "any")
                self.seen = [*getattr(self, "seen", []), stats]
                trainer.should_stop = min(stats.values()) < 0.006

        return logged(package, Stops)

    *_, epochs = require_same(scenario)
    assert epochs == 2


def test_a_summary_of_its_own() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        class Noted(package.L.callbacks.ModelSummary):
            @staticmethod
            def summarize(
                summary_data: Any,
                total_parameters: int,
                trainable_parameters: int,
                model_size: float,
                *args: Any,
                **kwargs: Any,
            ) -> None:
                columns = {title: cells for title, cells in summary_data if title in (" ", "Name", "Type", "Mode")}
                counts = {title: [cell.strip() for cell in cells] for title, cells in summary_data if title == "Params"}
                seen.extend([columns, counts, total_parameters, trainable_parameters, model_size, list(args), kwargs])

        module = package.module()
        module.frozen = nn.Sequential(nn.Linear(2, 3), nn.Dropout()).eval().requires_grad_(False)
        module.alone = nn.Parameter(torch.ones(7))
        callback = Noted(max_depth=1, word="mine")
        package.trainer(callbacks=[callback], enable_model_summary=True).fit(module, loader(16, 8))
        return seen

    *_, modes, rest = require_same(scenario)
    assert rest == {"total_flops": 0, "word": "mine"}
    assert modes[0]["eval"] == 3


def test_a_summary_calls_the_one_that_draws(capsys: pytest.CaptureFixture[str]) -> None:
    from systolic.callbacks import ModelSummary

    class Renamed(ModelSummary):
        @staticmethod
        def summarize(summary_data: Any, *args: Any, **kwargs: Any) -> None:
            ModelSummary.summarize([(title.upper(), cells) for title, cells in summary_data], *args, **kwargs)

    Renamed().on_fit_start(FakeTrainer(), nn.Sequential(nn.Linear(4, 3)))
    out = capsys.readouterr().out
    assert "TYPE" in out
    assert "Linear" in out
    assert "Trainable params" in out
