"""torchmetrics objects, logged as they are or by value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from trainer.three_ways import compare, loader, quiet_trainer, regression, run

import systolic as L
from systolic.exceptions import MisconfigurationException

torchmetrics = pytest.importorskip("torchmetrics")


def build(training: Any, validation: Any = None) -> Any:
    """A module with metrics, and these steps."""

    def make(base: Any) -> Any:
        methods = {"training_step": training} | ({"validation_step": validation} if validation else {})
        kind = regression(base, **methods)

        def __init__(self: Any) -> None:
            kind.__init__(self)
            self.error = torchmetrics.MeanSquaredError()
            self.val_error = torchmetrics.MeanAbsoluteError()
            self.mean = torchmetrics.MeanMetric(nan_strategy="disable")  # the others look at values in Python
            self.several = torchmetrics.MetricCollection([torchmetrics.MeanSquaredError(), torchmetrics.MeanAbsoluteError()])

        return type("WithMetrics", (kind,), {"__init__": __init__})

    return make


def _update(self: Any, batch: Any, batch_idx: int) -> Any:
    self.val_error.update(self(batch[0]), batch[1])
    self.log("val_error", self.val_error)


def test_called_and_logged_as_objects() -> None:
    def training(self: Any, batch: Any, batch_idx: int) -> Any:
        self.error(self(batch[0]), batch[1])
        self.log("error", self.error, on_step=True, on_epoch=True)
        return self.loss(batch)

    outcome = compare(build(training, _update), val=loader(10, seed=3), batch_size=8)
    assert {"error", "error_step", "error_epoch", "val_error"} <= set(outcome.metrics)


def test_updated_and_logged_at_the_epochs_end() -> None:
    def training(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.mean.update(loss.detach())
        self.log("mean", self.mean, on_step=False, on_epoch=True)
        return loss

    outcome = compare(build(training), batch_size=8)
    assert outcome.metrics["mean"] == pytest.approx(sum(outcome.losses[3:]) / 3, rel=1e-5)


@pytest.mark.tables
def test_computed_by_hand() -> None:
    def training(self: Any, batch: Any, batch_idx: int) -> Any:
        value = self.error(self(batch[0]), batch[1])
        self.log("value", value)
        return self.loss(batch)

    def on_train_epoch_end(self: Any) -> None:
        self.log("by_hand", self.error.compute())
        self.error.reset()

    def make(base: Any) -> Any:
        kind = build(training)(base)
        return type("ByHand", (kind,), {"on_train_epoch_end": on_train_epoch_end})

    compare(make)


def test_collection() -> None:
    def validation(self: Any, batch: Any, batch_idx: int) -> None:
        self.several.update(self(batch[0]), batch[1])
        self.log_dict(self.several)

    outcome = compare(build(lambda self, batch, batch_idx: self.loss(batch), validation), val=loader(10, seed=3))
    assert {"MeanSquaredError", "MeanAbsoluteError"} <= set(outcome.metrics)


@pytest.mark.parametrize("devices", [1, 2])
def test_validate(devices: int) -> None:
    make = build(lambda self, batch, batch_idx: self.loss(batch), _update)
    module = run("eager", make, max_epochs=1).module
    data = loader(13, 4 // devices, seed=3)
    (found,) = quiet_trainer(devices=devices).validate(module, data, verbose=False)
    x, y = data.dataset[:]
    assert found["val_error"] == pytest.approx(float((module(x) - y).detach().abs().mean()), rel=1e-5)
    (again,) = quiet_trainer(devices=devices).validate(module, data, verbose=False)
    assert again == found, "the metric was reset"


def test_nothing_compiles_in_the_second_epoch() -> None:
    def training(self: Any, batch: Any, batch_idx: int) -> Any:
        self.error(self(batch[0]), batch[1])
        self.log("error", self.error, on_step=True, on_epoch=True)
        return self.loss(batch)

    counts: list[int] = []

    class Watch(L.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            counts.append(len(trainer.compiles))

    run("compiled", build(training), max_epochs=4, callbacks=lambda base: [Watch()])
    assert counts[1:] == [counts[1]] * 3


WALKS: dict[str, Callable[[Any, Any], Any]] = {
    "another metric is logged": lambda self, loss: self.log("error", self.error),
    "parameters": lambda self, loss: torch.nn.utils.get_total_norm([p.detach() for p in self.parameters()]),
    "modules": lambda self, loss: [part.training for part in self.modules()],
    "in a set": lambda self, loss: {self.losses, self.error},
}


@pytest.mark.parametrize("walk", WALKS)
def test_a_metric_with_a_list_has_no_program_for_each_batch(walk: str) -> None:
    """Walks over modules ask for torchmetrics' hash of it, which is made of what the list holds."""

    def training(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.losses.update(loss.detach())
        self.error(self(batch[0]), batch[1])
        WALKS[walk](self, loss)
        return loss

    module = regression(L.LightningModule, training_step=training)()
    module.losses, module.error = torchmetrics.CatMetric(nan_strategy="disable"), torchmetrics.MeanSquaredError()
    trainer = quiet_trainer(max_epochs=2)
    trainer.fit(module, loader(32))
    assert len(trainer.compiles) <= 2 < trainer.global_step
    assert len(module.losses.compute()) == trainer.global_step


@pytest.mark.parametrize("others", [True, False])
@pytest.mark.parametrize("hook", ["training_step", "validation_step", "on_train_epoch_end"])
def test_a_metric_that_is_no_attribute_of_the_module(others: bool, hook: str) -> None:
    """Refused, as by Lightning: nobody would reset or save it."""

    def log(self: Any, *args: Any) -> Any:
        self.log("error", torchmetrics.MeanSquaredError())

    methods: dict[str, Any] = {"training_step": lambda self, batch, batch_idx: self.loss(batch), hook: log}
    module = regression(L.LightningModule, **methods)()
    if others:
        module.kept = torchmetrics.MeanAbsoluteError()
    with pytest.raises(MisconfigurationException, match=r"'kept'.*metric_attribute" if others else "self.metric = "):
        quiet_trainer().fit(module, loader(8), loader(8) if hook == "validation_step" else None)
