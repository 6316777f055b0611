"""Every hook, in Lightning's order.

The same recording module and callback run under both. Differences, all on purpose:

- hooks inside of the step (`on_before_zero_grad`, `on_before_backward`, `on_after_backward`,
  `on_before_optimizer_step`) run in Python only when the step is traced; what they do to variables that a callback's hooks
  reach (the list `seen`) is repeated after every step;
- `on_train_dataloader`-like internals and the strategy's hooks do not exist here.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from trainer.three_ways import loader, quiet_trainer, regression, run

import systolic as L

TRACED = ("on_before_zero_grad", "on_before_backward", "on_after_backward", "on_before_optimizer_step")
HOST = [
    "setup",
    "teardown",
    *(f"on_{stage}_{edge}" for stage in ("fit", "train", "validation", "test", "predict") for edge in ("start", "end")),
    *(
        f"on_{stage}_{part}_{edge}"
        for stage in ("train", "validation", "test", "predict")
        for part in ("epoch", "batch")
        for edge in ("start", "end")
    ),
]
ONLY_CALLBACKS = ["on_sanity_check_start", "on_sanity_check_end"]
MODES = [
    *(f"on_{stage}_model_{mode}" for stage in ("validation", "test") for mode in ("eval", "train")),
    "on_validation_model_zero_grad",
    "on_predict_model_eval",
]
ONLY_MODULE = ["prepare_data", "configure_model", "configure_optimizers", "configure_callbacks"]


def recording(seen: list[str], base: Any) -> Any:
    """A module that notes each of its hooks."""

    def noting(name: str, result: Any = None) -> Any:
        def hook(self: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(f"module.{name}")
            return result(self) if callable(result) else result

        return hook

    methods = {name: noting(name) for name in [*HOST, *TRACED, *MODES, "prepare_data", "configure_model"]}
    methods["configure_callbacks"] = noting("configure_callbacks", lambda self: [])
    methods["configure_optimizers"] = noting("configure_optimizers", lambda self: torch.optim.SGD(self.parameters(), 0.1))
    methods["validation_step"] = lambda self, batch, batch_idx: self.log("val_loss", self.loss(batch))
    methods["test_step"] = methods["validation_step"]
    methods["predict_step"] = lambda self, batch, batch_idx: self(batch[0])
    return regression(base, **methods)


def recorder(seen: list[str], base: Any) -> Any:
    """A callback that notes each of its hooks."""

    def noting(name: str) -> Any:
        return lambda self, *args, **kwargs: seen.append(f"callback.{name}")

    return type("Recorder", (base,), {name: noting(name) for name in [*HOST, *TRACED, *ONLY_CALLBACKS]})()


def order(kind: str, call: str = "fit", **options: Any) -> list[str]:
    seen: list[str] = []
    if call == "fit":
        run(
            kind,
            lambda base: recording(seen, base),
            callbacks=lambda base: [recorder(seen, base)],
            train=loader(8),
            val=loader(8, seed=2),
            **options,
        )
        return seen
    package = pytest.importorskip("lightning.pytorch") if kind == "lightning" else L
    model = recording(seen, package.LightningModule)()
    more = {} if kind == "lightning" else {"compile": kind == "compiled"}
    arguments: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "callbacks": [recorder(seen, package.Callback)],
    }  # fmt: skip
    with warnings.catch_warnings():
        if kind == "lightning":
            warnings.simplefilter("ignore")
        trainer = package.Trainer(max_epochs=1, **arguments, **more)
        getattr(trainer, call)(model, loader(8), **({} if call == "predict" else {"verbose": False}))
    return seen


EPOCH = [
    "on_train_epoch_start",
    *(["on_train_batch_start", *TRACED, "on_train_batch_end"] * 2),
    "module.on_validation_model_zero_grad",
    "module.on_validation_model_eval",
    "on_validation_start",
    "on_validation_epoch_start",
    *(["on_validation_batch_start", "on_validation_batch_end"] * 2),
    "on_validation_epoch_end",
    "on_validation_end",
    "module.on_validation_model_train",
    "on_train_epoch_end",
]
GOLDEN = [
    "module.prepare_data",
    "callback.setup",
    "module.setup",
    "module.configure_model",
    "module.configure_optimizers",
    "on_fit_start",
    "callback.on_sanity_check_start",
    *EPOCH[EPOCH.index("module.on_validation_model_eval") : EPOCH.index("on_train_epoch_end")],
    "callback.on_sanity_check_end",
    "on_train_start",
    *EPOCH,
    *EPOCH,
    "on_train_end",
    "on_fit_end",
    "callback.teardown",
    "module.teardown",
]


def expanded(golden: list[str]) -> list[str]:
    """Hooks without an owner are called on the callback, then on the module."""
    return [entry for name in golden for entry in ([name] if "." in name else [f"callback.{name}", f"module.{name}"])]


def without(names: tuple[str, ...], seen: list[str]) -> list[str]:
    return [entry for entry in seen if entry.split(".")[1] not in names]


def test_golden_order_in_eager() -> None:
    assert without(("configure_callbacks",), order("eager")) == expanded(GOLDEN)


def test_as_lightning() -> None:
    ours, theirs = order("eager"), order("lightning")
    assert ours == theirs


def test_compiled_as_eager_hooks_inside_of_the_step_included() -> None:
    assert order("compiled") == order("eager")


@pytest.mark.parametrize("call", ["validate", "test", "predict"])
def test_evaluation_as_lightning(call: str) -> None:
    assert order("eager", call) == order("lightning", call)
    assert order("compiled", call) == order("eager", call)


def test_callbacks_that_watch_a_metric_come_last() -> None:
    seen: list[str] = []

    class Early(L.callbacks.EarlyStopping):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append(f"early stopping sees {trainer.callback_metrics['late'].item()}")

    class Other(L.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            seen.append("callback")

    def on_train_epoch_end(self: Any) -> None:
        seen.append("module")
        self.log("late", 2.0)

    module = regression(L.LightningModule, on_train_epoch_end=on_train_epoch_end)()
    quiet_trainer(compile=False, callbacks=[Early("late"), Other()]).fit(module, loader())
    assert seen == ["callback", "module", "early stopping sees 2.0"]


def test_callbacks_of_the_module_replace_those_of_their_type() -> None:
    seen: list[str] = []

    class Named(L.Callback):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            seen.append(self.name)

    module = regression(L.LightningModule, configure_callbacks=lambda self: [Named("module")])()
    quiet_trainer(compile=False, callbacks=[Named("trainer")]).fit(module, loader())
    assert seen == ["module"]


def test_transfer_hooks() -> None:
    def on_before_batch_transfer(self: Any, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] * 2, batch[1]]

    def on_after_batch_transfer(self: Any, batch: Any, dataloader_idx: int) -> Any:
        return [batch[0] + 1, batch[1]]

    methods = {"on_before_batch_transfer": on_before_batch_transfer, "on_after_batch_transfer": on_after_batch_transfer}
    results = [run(kind, lambda base: regression(base, **methods)) for kind in ("compiled", "eager", "lightning")]
    assert results[0].losses == pytest.approx(results[1].losses, rel=1e-5)
    assert results[1].losses == pytest.approx(results[2].losses, rel=1e-6)


def test_stages() -> None:
    seen: list[str] = []

    def note(self: Any, batch: Any, batch_idx: int = 0) -> Any:
        trainer = self.trainer
        names = ("training", "validating", "sanity_checking", "testing", "predicting")
        seen.append("+".join(name for name in names if getattr(trainer, name)))
        return self.loss(batch)

    steps = {f"{name}_step": note for name in ("training", "validation", "test", "predict")}
    module = regression(L.LightningModule, **steps)()
    trainer = quiet_trainer(compile=False)
    trainer.fit(module, loader(4), loader(4))
    trainer.validate(module, loader(4), verbose=False)
    trainer.test(module, loader(4), verbose=False)
    trainer.predict(module, loader(4))
    assert seen == ["sanity_checking", "training", "validating", "validating", "testing", "predicting"]
