"""Loggers get Lightning's calls, in Lightning's order: hyperparameters of every run, graphs, learning rates, values of steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def recorder_of(package: Package, rows: list[Any]) -> Any:
    """A logger that takes down what it is called with."""

    class Recorder(package.L.loggers.Logger):
        name, version = "recorder", 0

        @property
        def experiment(self) -> Any:
            return self

        def log(self, values: dict[str, Any]) -> None:
            rows.append(["log", values])

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            rows.append(["metrics", step, list(metrics)])

        def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
            rows.append(["hyperparameters", dict(params)])

        def log_graph(self, model: Any, input_array: Any = None) -> None:
            rows.append(["graph"])

    return Recorder()


def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
    self.logger.experiment.log({"step": self.global_step})
    loss = self.loss(batch)
    self.log("loss", loss)
    return loss


def evaluation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("evaluated", self.loss(batch))


def module_of(package: Package, size: int, **methods: Any) -> Any:
    """The small regression with a hyperparameter."""
    module = package.module(validation_step=evaluation_step, test_step=evaluation_step, **methods)
    module.save_hyperparameters({"size": size})
    return module


def test_every_run_logs_its_hyperparameters() -> None:
    def scenario(package: Package) -> Any:
        rows: list[Any] = []

        def on_fit_start(self: Any) -> None:
            rows.append(["on_fit_start"])

        first, second = module_of(package, 1, on_fit_start=on_fit_start), module_of(package, 2)
        trainer = package.trainer(logger=recorder_of(package, rows), num_sanity_val_steps=0)
        trainer.fit(first, loader(), loader())
        for module in (first, second):
            trainer.validate(module, loader(), verbose=False)
            trainer.test(module, loader(), verbose=False)
        trainer.fit_loop.max_epochs = 2
        trainer.fit(first, loader(), loader())
        return rows

    assert require_same(scenario)[:2] == [["on_fit_start"], ["hyperparameters", {"size": 1}]]


@pytest.mark.parametrize("window", [1, 2])
@pytest.mark.parametrize("every", [1, 2])
def test_rows_of_steps_come_in_order(window: int, every: int) -> None:
    def scenario(package: Package) -> Any:
        rows: list[Any] = []
        trainer = package.trainer(
            max_epochs=2, logger=recorder_of(package, rows), accumulate_grad_batches=window, log_every_n_steps=every,
            callbacks=[package.L.callbacks.LearningRateMonitor("step")],
        )  # fmt: skip
        trainer.fit(module_of(package, 1, training_step=training_step), loader())
        return rows

    require_same(scenario)


@pytest.mark.tables
def test_calls_of_slow_steps_come_after_the_rows_of_the_steps_before() -> None:
    def scenario(package: Package) -> Any:
        rows: list[Any] = []

        class Slow(package.L.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1024, 1024)

            def training_step(self, batch: Any, batch_idx: int) -> Any:
                x = batch
                for _ in range(10):
                    x = torch.tanh(self.layer(x))
                self.logger.experiment.log({"step": self.global_step})
                self.log("loss", x.square().mean())
                return x.square().mean()

            def validation_step(self, batch: Any, batch_idx: int) -> None:
                pass

            def on_validation_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
                self.log("at", float(batch_idx), on_step=True, on_epoch=True)

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.1)

        data, val = (torch.utils.data.DataLoader([*torch.ones(count, 1024)], 100) for count in (800, 200))
        package.trainer(logger=recorder_of(package, rows), log_every_n_steps=1, val_check_interval=3).fit(Slow(), data, val)
        return rows

    require_same(scenario)
