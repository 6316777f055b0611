"""Learning-rate schedulers in every form that configure_optimizers may return."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler
from trainer.as_lightning import Package, require_same
from trainer.three_ways import Outcome, compare, loader, quiet_trainer, regression

import systolic as L


def build(configure: Callable[[Any], Any], **methods: Any) -> Callable[[Any], Any]:
    return lambda base: regression(base, configure_optimizers=configure, **methods)


def adam(module: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=0.05)


def halving(optimizer: Any) -> Any:
    return lr_scheduler.StepLR(optimizer, 1, 0.5)


def _with_scheduler(**options: Any) -> Callable[[Any], Any]:
    def configure(self: Any) -> Any:
        optimizer = adam(self)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": halving(optimizer), **options}}

    return configure


def _one_list(self: Any) -> Any:
    return [adam(self)]


def _two_lists(self: Any) -> Any:
    optimizer = adam(self)
    return [optimizer], [halving(optimizer)]


def _two_lists_with_dict(self: Any) -> Any:
    optimizer = adam(self)
    return [optimizer], [{"scheduler": halving(optimizer), "interval": "step", "frequency": 2}]


def _plain_dict(self: Any) -> Any:
    optimizer = adam(self)
    return {"optimizer": optimizer, "lr_scheduler": halving(optimizer)}


def _only_optimizer_in_dict(self: Any) -> Any:
    return {"optimizer": adam(self)}


def _two_schedulers(self: Any) -> Any:
    optimizer = adam(self)
    warm_up = lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
    return [optimizer], [{"scheduler": warm_up, "interval": "step"}, halving(optimizer)]


def _groups(self: Any) -> Any:
    groups = [{"params": self.first.parameters(), "lr": 0.01}, {"params": self.second.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    return {"optimizer": optimizer, "lr_scheduler": lr_scheduler.ExponentialLR(optimizer, 0.7)}


FORMS = {
    "list": _one_list,
    "two_lists": _two_lists,
    "two_lists_with_dict": _two_lists_with_dict,
    "dict": _plain_dict,
    "dict_optimizer_only": _only_optimizer_in_dict,
    "dict_epoch": _with_scheduler(interval="epoch"),
    "dict_every_second_epoch": _with_scheduler(interval="epoch", frequency=2, name="lr"),
    "dict_step": _with_scheduler(interval="step"),
    "dict_every_second_step": _with_scheduler(interval="step", frequency=2),
    "two_schedulers": _two_schedulers,
    "groups": _groups,
}


@pytest.mark.parametrize("form", FORMS)
def test_form(form: str) -> None:
    outcome = compare(build(FORMS[form]), max_epochs=3)
    assert len(outcome.trainer.compiles) == 1, "a new learning rate is no reason to compile"


@pytest.mark.tables
def test_frequency_with_accumulation() -> None:
    compare(build(_with_scheduler(interval="step", frequency=3)), max_epochs=2, accumulate_grad_batches=3)


def test_one_cycle_changes_momentum_every_step() -> None:
    def configure(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)
        total = self.trainer.estimated_stepping_batches
        scheduler = lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=int(total), cycle_momentum=True)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    outcome = compare(build(configure), max_epochs=2)
    assert len({round(rate, 6) for rate in outcome.rates}) > 5
    assert len(outcome.trainer.compiles) <= 3


def _plateau(**options: Any) -> Callable[[Any], Any]:
    def configure(self: Any) -> Any:
        optimizer = adam(self)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, **options}}

    return configure


def _validation_step(self: Any, batch: Any, batch_idx: int) -> None:
    self.log("val_loss", self.loss(batch))


def test_plateau_on_validation() -> None:
    module = build(_plateau(monitor="val_loss"), validation_step=_validation_step)
    outcome = compare(module, val=loader(8, seed=2), max_epochs=4)
    assert outcome.rates[-1] < outcome.rates[0]


def test_plateau_with_monitor_beside_the_scheduler() -> None:
    def configure(self: Any) -> Any:
        optimizer = adam(self)
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.5)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "late"}

    def on_train_epoch_end(self: Any) -> None:
        self.log("late", 1.0 + self.current_epoch)

    outcome = compare(build(configure, on_train_epoch_end=on_train_epoch_end), max_epochs=3)
    assert outcome.rates[-1] == pytest.approx(0.025)


def test_plateau_every_step() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("loss", loss)
        return loss

    compare(build(_plateau(monitor="loss", interval="step", frequency=2), training_step=training_step))


def test_plateau_that_may_miss_its_metric() -> None:
    module = build(_plateau(monitor="nothing", strict=False))(L.LightningModule)()
    with pytest.warns(RuntimeWarning, match="metric 'nothing' which is not available but strict is False"):
        quiet_trainer().fit(module, loader())


def test_plateau_without_its_metric() -> None:
    def training_step(self: Any, batch: Any, batch_idx: int) -> Any:
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    module = build(_plateau(monitor="train_los"), training_step=training_step)(L.LightningModule)()
    with pytest.raises(L.MisconfigurationException, match=r"'train_los' which is not available.*Did you mean 'train_loss'"):
        quiet_trainer().fit(module, loader())


def test_own_lr_scheduler_step() -> None:
    class EveryStep:
        def __init__(self, optimizer: Any) -> None:
            self.optimizer = optimizer

        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            del state

        def step(self, epoch: int) -> None:
            self.optimizer.param_groups[0]["lr"] = 0.05 / (1 + epoch)

    def configure(self: Any) -> Any:
        optimizer = adam(self)
        return [optimizer], [EveryStep(optimizer)]

    def lr_scheduler_step(self: Any, scheduler: Any, metric: Any) -> None:
        scheduler.step(epoch=self.current_epoch)

    compare(build(configure, lr_scheduler_step=lr_scheduler_step), max_epochs=3)


def test_the_end_by_max_steps_is_no_end_of_an_epoch() -> None:
    outcome: Outcome = compare(build(_plain_dict), max_steps=7, max_epochs=5)
    assert outcome.trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.025)


@pytest.mark.parametrize(
    ("configure", "message"),
    [
        (lambda self: 3, "Unknown configuration for model optimizers.*Received: int"),
        (lambda self: {"optimizer": adam(self), "lr_schedulr": 1}, "'lr_schedulr'.*Did you mean 'lr_scheduler'"),
        (lambda self: {"lr_scheduler": 1}, "needs the key 'optimizer'.*Received: NoneType"),
        (_with_scheduler(intervall="step"), "'intervall'.*Did you mean 'interval'"),
        (_with_scheduler(interval="batch"), '"interval" key in lr scheduler dict must be "epoch" or "step".*batch'),
        (_with_scheduler(frequency=0), "'frequency' of an lr_scheduler.*Received: 0"),
        (_plateau(), re.escape("must include a monitor when a `ReduceLROnPlateau`")),
        (lambda self: [adam(self), adam(self)], "multiple optimizers is only supported with manual optimization.*Received: 2"),
        (lambda self: ([adam(self)], [3]), "lr_scheduler.*step.*Received: int"),
        (lambda self: ([3], []), "torch.optim.Optimizer.*Received: int"),
    ],
)
def test_bad_configuration(configure: Callable[[Any], Any], message: str) -> None:
    module = build(configure)(L.LightningModule)()
    with pytest.raises(L.MisconfigurationException, match=message):
        quiet_trainer().fit(module, loader())


def test_a_key_of_somebodys_own_is_passed_over_as_in_lightning() -> None:
    def scenario(package: Package) -> Any:
        def configure(self: Any) -> Any:
            optimizer = adam(self)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": halving(optimizer), "foo": 1}, "hpo": 2}

        module = package.module(configure_optimizers=configure)
        return [package.warned(lambda: package.trainer().fit(module, loader()), key) for key in ("foo", "hpo")]

    assert require_same(scenario, ("lightning", "eager")) == [True, True]
