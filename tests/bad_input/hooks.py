"""Hooks that raise: their error arrives as it is, everything is put back, and a new fit works. Loggers that do not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from trainer.three_ways import loader, regression

import systolic as L
from systolic.exceptions import MisconfigurationException
from systolic.loggers import Logger

from .cases import Case, trainer


def _raises(name: str) -> Callable[..., Any]:
    def hook(*args: object, **named: object) -> None:
        raise ZeroDivisionError(f"in {name}")

    return hook


def _of_hook(name: str, owner: str) -> Case:
    def tried() -> None:
        methods: dict[str, Any] = {"validation_step": lambda self, batch, batch_idx: None}
        callbacks: list[Any] = []
        if owner == "module":
            methods[name] = _raises(name)
        else:
            callbacks = [type("Failing", (L.Callback,), {name: _raises(name)})()]
        model = regression(L.LightningModule, **methods)()
        try:
            trainer(compile=False, callbacks=callbacks).fit(model, loader(), loader())
        finally:
            _require_as_before(model, name)

    return Case(f"{owner}: {name} raises", tried, ZeroDivisionError, f"in {name}")


def _require_as_before(model: Any, name: str) -> None:
    """The weights are on the CPU, and the module trains again without the hook."""
    assert all(type(p) is torch.nn.Parameter and p.device.type == "cpu" for p in model.parameters()), name
    again = regression(L.LightningModule)()
    again.load_state_dict(model.state_dict())
    trainer(compile=False, max_steps=1).fit(again, loader())


_OF_MODULE = (
    "setup", "configure_model", "configure_optimizers", "configure_callbacks", "prepare_data", "on_fit_start", "on_train_start",
    "on_train_epoch_start", "on_train_batch_start", "training_step", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end", "on_validation_start", "validation_step", "on_validation_epoch_end",
    "on_train_epoch_end", "on_fit_end", "teardown", "on_before_batch_transfer",
)  # fmt: skip

RAISING = tuple(_of_hook(name, "module") for name in _OF_MODULE)


class _Failing(Logger):
    """A logger one method of which raises."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self._method = method

    def _call(self, method: str) -> None:
        if method == self._method:
            raise OSError(28, "No space left on device", f"metrics of {method}")

    @property
    def name(self) -> str:
        return "failing"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: Any, step: Any = None) -> None:
        self._call("log_metrics")

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        self._call("log_hyperparams")

    def save(self) -> None:
        self._call("save")

    def finalize(self, status: str) -> None:
        self._call("finalize")


def _of_logger(method: str) -> Case:
    def tried() -> None:
        model = regression(L.LightningModule, training_step=_logged)()
        trainer(compile=False, logger=_Failing(method), log_every_n_steps=1).fit(model, loader())

    return Case(f"a logger whose {method} raises", tried, OSError, f"metrics of {method}")


def _logged(self: Any, batch: Any, batch_idx: int) -> Any:
    loss = self.loss(batch)
    self.log("loss", loss)
    return loss


def _of_callback(given: str, says: str, **hooks: Any) -> Case:
    def tried() -> None:
        callback = type("Mine", (L.Callback,), hooks)()
        trainer(compile=False, callbacks=callback).fit(regression(L.LightningModule)(), loader())

    return Case(f"a callback's {given}", tried, TypeError, says)


class _Half:
    """Has a name, and nothing else of a logger."""

    name = "half"


def _error_in_finalize() -> None:
    """The error of training is the one that arrives."""
    model = regression(L.LightningModule, training_step=_raises("training_step"))()
    trainer(compile=False, logger=_Failing("finalize")).fit(model, loader())


LOGGERS = (
    _of_logger("log_metrics"),
    _of_logger("save"),
    _of_logger("finalize"),
    Case("a logger whose finalize raises after an error of training", _error_in_finalize, ZeroDivisionError, "in training_step"),
    Case(
        "an object with a name as a logger", lambda: trainer(logger=_Half()), MisconfigurationException,
        "_Half cannot be used as a logger",
    ),
    _of_callback("on_train_start(self)", "hook `on_train_start` of Mine", on_train_start=lambda self: None),
    _of_callback("setup(self, trainer)", "hook `setup` of Mine", setup=lambda self, trainer: None),
    _of_callback(
        "on_train_batch_end(self, trainer, module)", "hook `on_train_batch_end` of Mine",
        on_train_batch_end=lambda self, trainer, module: None,
    ),
)  # fmt: skip

CASES = {"Hooks that raise": RAISING, "Loggers and hooks of callbacks": LOGGERS}
