"""Errors and warnings that users of Lightning search for, or filter by, hold the words that they know."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def _said(action: Callable[[], object]) -> list[str]:
    """The messages of an action: its warnings, and its error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            action()
        except Exception as error:
            return [*(str(one.message) for one in caught), f"{type(error).__name__}: {error}"]
    return [str(one.message) for one in caught]


def _fit(package: Package, options: dict[str, Any] | None = None, **methods: Any) -> None:
    package.trainer(**(options or {})).fit(package.module(**methods), loader())


def _scheduled(**entries: Any) -> Callable[[Any], Any]:
    def configure_optimizers(self: Any) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1), **entries}}

    return configure_optimizers


def _plateau(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
    return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)]


def _plateau_by_hand(self: Any) -> Any:
    optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    return [optimizer], [{"scheduler": scheduler, "monitor": "loss", "interval": "step"}]


def _by_hand(self: Any, batch: Any, batch_idx: int) -> None:
    """A step of manual optimization that does nothing."""


def _manual(package: Package, options: dict[str, Any] | None = None, **methods: Any) -> None:
    module = package.module(training_step=_by_hand, **methods)
    module.automatic_optimization = False
    package.trainer(**(options or {})).fit(module, loader())


def _logs(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("loss", loss, logger=True)
    return loss


def _accumulating(package: Package) -> None:
    scheduler = package.L.callbacks.GradientAccumulationScheduler({0: 2})
    _fit(package, {"accumulate_grad_batches": 2, "callbacks": [scheduler]})


def _saved_module(package: Package) -> None:
    class Holding(package.L.LightningModule):
        def __init__(self, encoder: nn.Module) -> None:
            super().__init__()
            self.save_hyperparameters()

    Holding(nn.Linear(1, 1))


def _saved_number(package: Package) -> None:
    class Holding(package.L.LightningModule):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.save_hyperparameters(width)

    Holding(3)


WORDS: dict[str, tuple[str, Callable[[Package], object]]] = {
    "unknown argument": ("__init__() got an unexpected keyword argument 'max_epoch'", lambda p: p.trainer(max_epoch=1)),
    "fast_dev_run": ("should be >= 0", lambda p: p.trainer(fast_dev_run=-1)),
    "profiler": ("When passing string value for the `profiler` parameter", lambda p: p.trainer(profiler="quick")),
    "barebones": ("enable_checkpointing=True)` was passed", lambda p: p.trainer(barebones=True, enable_checkpointing=True)),
    "no module": ("must be a `LightningModule`", lambda p: p.trainer().validate(nn.Linear(1, 1))),
    "no optimizer": ("will run with no optimizer", lambda p: _fit(p, configure_optimizers=lambda self: None)),
    "unknown key": (
        "Found unsupported keys in the lr scheduler dict: {'mine'}",
        lambda p: _fit(p, configure_optimizers=_scheduled(mine=1)),
    ),
    "interval": (
        'The "interval" key in lr scheduler dict must be',
        lambda p: _fit(p, configure_optimizers=_scheduled(interval="day")),
    ),
    "plateau": ("must include a monitor when a `ReduceLROnPlateau`", lambda p: _fit(p, configure_optimizers=_plateau)),
    "keys that nobody reads": (
        "['monitor'], but the keys will be ignored",
        lambda p: _manual(p, configure_optimizers=_plateau_by_hand),
    ),
    "manual accumulation": (
        "Automatic gradient accumulation is not supported for manual optimization",
        lambda p: _manual(p, {"accumulate_grad_batches": 2}),
    ),
    "two accumulations": ("`accumulate_grad_batches` and are using the `GradientAccumulationScheduler`", _accumulating),
    "no logger": ("('loss', ..., logger=True)` but have no logger", lambda p: _fit(p, training_step=_logs)),
    "mode": ("`mode` can be", lambda p: p.L.callbacks.ModelCheckpoint(mode="least")),
    "top k": (
        "ModelCheckpoint(save_top_k=3, monitor=None) is not a valid",
        lambda p: p.L.callbacks.ModelCheckpoint(save_top_k=3),
    ),
    "start of the average": (
        ">0 integer or a float between 0 and 1",
        lambda p: p.L.callbacks.StochasticWeightAveraging(0.1, swa_epoch_start=0),
    ),
    "saved module": ("is an instance of `nn.Module` and is already saved", _saved_module),
    "saved number": ("Primitives (<class 'bool'>", _saved_number),
    "table of PyTorch's profiler": (
        "table_kwargs key: row_limit. This is already a positional argument",
        lambda p: p.L.profilers.PyTorchProfiler(table_kwargs={"row_limit": 1}),
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_the_words_are_there(name: str) -> None:
    words, action = WORDS[name]
    assert require_same(lambda package: sum(words in said for said in _said(lambda: action(package))) > 0) is True
