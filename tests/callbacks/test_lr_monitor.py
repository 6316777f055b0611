"""Which learning rates are logged, when, and under which names."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from callbacks.fake_trainer import FakeTrainer
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader

from systolic.callbacks import LearningRateMonitor
from systolic.exceptions import MisconfigurationException


class Recorder:
    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, float]]] = []

    def log_metrics(self, metrics: dict[str, float], step: int) -> None:
        self.rows.append((step, metrics))


def parameters() -> list[torch.Tensor]:
    return [torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)]


def scheduled(optimizer: Any, name: str | None = None, interval: str = "epoch") -> Any:
    return SimpleNamespace(scheduler=StepLR(optimizer, 1), name=name, interval=interval)


def trainer_with(optimizers: list[Any], configs: list[Any] | None = None, **arguments: Any) -> tuple[Any, Recorder]:
    recorder = Recorder()
    trainer = FakeTrainer(
        callbacks=[LearningRateMonitor(**arguments)],
        loggers=[recorder],
        optimizers=optimizers,
        lr_scheduler_configs=configs or [],
        enable_validation=False,
    )
    return trainer, recorder


def test_names() -> None:
    several = [{"params": p, "lr": lr} for p, lr in zip(parameters(), (0.2, 0.3), strict=True)]
    named = [{"params": p, "name": name} for p, name in zip(parameters(), "ab", strict=True)]
    optimizers = [Adam(parameters(), lr=0.1), Adam(several), SGD(named, lr=0.4), SGD(parameters(), lr=0.5)]
    trainer, recorder = trainer_with(optimizers, [scheduled(optimizers[2], "mine"), scheduled(optimizers[1])])
    trainer.train()
    assert recorder.rows[0] == (
        0,
        {
            "mine/a": 0.4,
            "mine/b": 0.4,
            "lr-Adam/pg1": 0.2,
            "lr-Adam/pg2": 0.3,
            "lr-Adam-1": 0.1,
            "lr-SGD": 0.5,
        },
    )


@pytest.mark.parametrize(
    ("logging_interval", "interval", "rows"),
    [(None, "step", 8), (None, "epoch", 2), ("step", "epoch", 8), ("epoch", "step", 2)],
)
def test_when(logging_interval: Any, interval: str, rows: int) -> None:
    optimizer = SGD(parameters(), lr=1.0)
    trainer, recorder = trainer_with([optimizer], [scheduled(optimizer, interval=interval)], logging_interval=logging_interval)
    trainer.train(epochs=2)
    assert len(recorder.rows) == rows


def test_steps_are_logged_in_the_steps_in_which_metrics_are() -> None:
    trainer, recorder = trainer_with([SGD(parameters(), lr=1.0)], logging_interval="step")
    trainer.log_every_n_steps = 3
    trainer.train(epochs=2)
    assert [step for step, _ in recorder.rows] == [2, 5]
    trainer.log_every_n_steps = 0
    trainer.train()
    assert len(recorder.rows) == 2


def test_accumulation_logs_a_row_for_each_batch_as_lightning_does() -> None:
    trainer, recorder = trainer_with([SGD(parameters(), lr=1.0)], logging_interval="step")
    trainer.start()
    for _ in range(3):
        trainer.call("on_train_batch_start", None, 0)
    assert [step for step, _ in recorder.rows] == [0, 0, 0]


def test_momentum_and_weight_decay() -> None:
    optimizers = [SGD(parameters(), lr=1.0, momentum=0.9, weight_decay=0.1), Adam(parameters(), betas=(0.8, 0.99))]
    trainer, recorder = trainer_with(optimizers, log_momentum=True, log_weight_decay=True)
    trainer.train()
    values = recorder.rows[0][1]
    assert (values["lr-SGD-momentum"], values["lr-SGD-weight_decay"]) == (0.9, 0.1)
    assert (values["lr-Adam-momentum"], values["lr-Adam-weight_decay"]) == (0.8, 0)
    callback = trainer.callbacks[0]
    assert callback.last_momentum_values == {"lr-SGD-momentum": 0.9, "lr-Adam-momentum": 0.8}
    assert callback.last_weight_decay_values == {"lr-SGD-weight_decay": 0.1, "lr-Adam-weight_decay": 0}


def test_values_follow_the_scheduler_and_can_be_monitored() -> None:
    optimizer = SGD(parameters(), lr=1.0)
    config = scheduled(optimizer)
    trainer, _ = trainer_with([optimizer], [config])
    trainer.start()
    for _ in range(3):
        trainer.call("on_train_epoch_start")
        optimizer.step()
        config.scheduler.step()
    assert trainer.callbacks[0].lrs == {"lr-SGD": pytest.approx([1.0, 0.1, 0.01])}
    assert trainer.callback_metrics["lr-SGD"].item() == pytest.approx(0.01)


def test_a_logger_is_needed() -> None:
    trainer, _ = trainer_with([])
    trainer.loggers = []
    with pytest.raises(MisconfigurationException, match="`Trainer` that has no logger"):
        trainer.train()


def test_groups_of_the_same_name_are_refused() -> None:
    optimizer = SGD([{"params": p, "name": "same"} for p in parameters()], lr=1.0)
    with pytest.raises(MisconfigurationException, match="several of the name same"):
        trainer_with([optimizer])[0].train()


def test_an_unknown_interval_is_refused() -> None:
    with pytest.raises(MisconfigurationException, match="expected 'step', 'epoch' or None"):
        LearningRateMonitor(logging_interval="batch")  # type: ignore[arg-type]


def test_with_two_optimizers_every_batch_is_a_step_of_the_loggers() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

    def configure_optimizers(self: Any) -> Any:
        return [SGD(self.first.parameters(), lr=0.1), Adam(self.second.parameters(), lr=0.01)]

    def scenario(package: Package) -> Any:
        recorder = _recorder(package)
        module = package.module(training_step=training_step, configure_optimizers=configure_optimizers)
        module.automatic_optimization = False
        callbacks = [package.L.callbacks.LearningRateMonitor(logging_interval="step")]
        trainer = package.trainer(callbacks=callbacks, logger=recorder, log_every_n_steps=2)
        trainer.fit(module, loader(20))
        return [row for row in recorder.rows if "lr-SGD" in row[1]], callbacks[0].lrs, sorted(trainer.callback_metrics)

    rows, *_ = require_same(scenario)
    assert [step for step, _ in rows] == [1, 3]


def _recorder(package: Package) -> Any:
    """A logger of the package that keeps what it is given."""

    def __init__(self: Any) -> None:
        base.__init__(self)
        self.rows = []

    base = package.L.loggers.logger.Logger if package.kind == "lightning" else package.L.loggers.Logger
    methods = {
        "__init__": __init__,
        "log_metrics": lambda self, metrics, step=None: self.rows.append((step, dict(metrics))),
        "log_hyperparams": lambda self, *args, **kwargs: None,
        "name": "rows",
        "version": 0,
    }
    return type("Rows", (base,), methods)()


def test_a_group_that_is_joined_by_others_keeps_what_was_noted() -> None:
    def scenario(package: Package) -> Any:
        monitor = package.L.callbacks.LearningRateMonitor(logging_interval="epoch")

        def configure_optimizers(self: Any) -> Any:
            return torch.optim.SGD(self.first.parameters(), lr=0.1)

        def on_train_epoch_end(self: Any) -> None:
            if self.current_epoch == 1:
                self.optimizers(use_pl_optimizer=False).add_param_group({"params": self.second.parameters(), "lr": 0.2})

        module = package.module(configure_optimizers=configure_optimizers, on_train_epoch_end=on_train_epoch_end)
        logger = package.L.loggers.CSVLogger(package.path)
        package.trainer(callbacks=[monitor], logger=logger, max_epochs=4).fit(module, loader(4))
        return monitor.lrs

    assert require_same(scenario) == {"lr-SGD/pg1": [0.1, 0.1, 0.1, 0.1], "lr-SGD/pg2": [0.2, 0.2]}
