"""Runs inside of a run, of the same parameters: evaluations by another Trainer in a hook, a probe that is fitted on the side.

The end of the inner run brings the parameters back to the host. **The outer one went on with those on the devices.**
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, trainer_of

import systolic

T = torch.Tensor


def _library(module: Any) -> Any:
    return systolic if isinstance(module, systolic.LightningModule) else __import__("lightning")


def _trainer(module: Any, devices: int) -> Any:
    return trainer_of(_library(module), devices=devices if _library(module) is systolic else 1)


def _data(module: Any, devices: int) -> Any:
    return loader(32, 5, 16 // devices if _library(module) is systolic else 16)


def _validated(module: Any, devices: int) -> None:
    outer = module.trainer
    found = _trainer(module, devices).validate(module, _data(module, devices), verbose=False)
    module.trainer = outer
    module.seen.append(found[0]["val_loss"])


def _predicted(module: Any, devices: int) -> None:
    outer = module.trainer
    found = _trainer(module, devices).predict(module, _data(module, devices))
    module.trainer = outer
    module.seen.append(torch.cat(found).double().sum().item())


def _fitted(module: Any, devices: int) -> None:
    library = _library(module)

    class Probe(library.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = module.inner

        def training_step(self, batch: Any, i: int) -> T:
            return self.body(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.body.parameters(), 0.05)

    _trainer(module, devices).fit(Probe(), _data(module, devices))
    module.seen.append(module.inner.weight.detach().double().sum().item())


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("inner", [_validated, _predicted, _fitted])
def test_the_outer_run_goes_on_with_the_same_parameters(inner: Any, devices: int) -> None:
    def on_train_epoch_end(module: Any) -> None:
        inner(module, devices)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", module.loss(batch))

    def predict_step(module: Any, batch: Any, i: int) -> T:
        return module(batch[0])

    methods = {"on_train_epoch_end": on_train_epoch_end, "validation_step": validation_step, "predict_step": predict_step}
    module = beside_lightning(methods, lambda module: module.seen, devices=devices, epochs=4, advice=False)
    new = [one.reason for one in module.trainer.compiles if one.is_new_executable]
    # traced again, and not compiled, unless the inner run brought back a part of what had lain in one buffer
    assert len(new) <= (8 if inner is _fitted else 3), new


def test_other_optimizers_are_validated_with_the_same_parameters() -> None:
    def on_train_epoch_start(module: Any) -> None:
        if module.current_epoch == 1:
            module.trainer.optimizers = [torch.optim.Adam(module.parameters(), 0.01)]

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", module.loss(batch))

    def on_validation_epoch_end(module: Any) -> None:
        module.seen.append(float(module.trainer.callback_metrics.get("val_loss", -1)))

    methods = {"on_train_epoch_start": on_train_epoch_start, "validation_step": validation_step}
    methods["on_validation_epoch_end"] = on_validation_epoch_end
    beside_lightning(methods, lambda module: module.seen, epochs=4)


def test_a_function_of_jit_in_a_hook_sees_each_steps_parameters() -> None:
    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        if _library(module) is systolic:
            call = module.__dict__.setdefault("call", systolic.jit(lambda x: module(x).square().mean()))
            value = call(batch[0])
            if i == 1:
                call.release()
        else:
            with torch.no_grad():
                value = module(batch[0]).square().mean()
        module.seen.append(float(value))

    beside_lightning({"on_train_batch_end": on_train_batch_end}, lambda module: module.seen, epochs=3)
