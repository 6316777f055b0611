"""Steps that read `trainer.callback_metrics` and its like: what was logged before them, and by themselves, as under Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, trainer_of

import systolic

T = torch.Tensor


def _own_value(module: Any, loss: T) -> T:
    module.log("loss", loss)
    return loss * (1 + module.trainer.callback_metrics["loss"])


def _value_of_the_last_step(module: Any, loss: T) -> T:
    before = module.trainer.callback_metrics.get("loss")
    module.log("loss", loss)
    return loss if before is None else loss * (1 + before)


def _all_values(module: Any, loss: T) -> T:
    module.log("loss", loss, on_step=True, on_epoch=True, prog_bar=True)
    values = dict(sorted(module.trainer.callback_metrics.items()))
    module.log("sum", sum(values.values()))
    module.log("count", float(len(values)))
    return loss


def _last_validation(module: Any, loss: T) -> T:
    module.log("loss", loss)
    return loss * module.trainer.callback_metrics.get("val_loss", torch.tensor(1.0))


def _decision(module: Any, loss: T) -> T:
    values = module.trainer.callback_metrics
    if "val_loss" in values and values["val_loss"].item() < 1.1:
        loss = loss * 0.5
    module.log("loss", loss)
    return loss


def _numbers_of_the_bar(module: Any, loss: T) -> T:
    factor = module.trainer.progress_bar_metrics.get("val_loss", 2.0)
    module.log("loss", loss, prog_bar=True)
    return loss * factor


def _logged(module: Any, loss: T) -> T:
    module.log("hidden", loss, logger=False)
    module.log("loss", loss)
    return loss * (1 + len(module.trainer.logged_metrics))


def _validation_step(module: Any, batch: Any, i: int) -> None:
    module.log("val_loss", module.loss(batch), prog_bar=True)


_STEPS = [_own_value, _value_of_the_last_step, _all_values, _last_validation, _decision, _numbers_of_the_bar, _logged]


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("step", _STEPS)
def test_a_step_reads_what_was_logged(step: Callable[[Any, T], T], devices: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        return step(module, module.loss(batch))

    def on_train_batch_end(module: Any, *_: Any) -> None:
        module.seen.append({name: float(value) for name, value in sorted(module.trainer.callback_metrics.items())})

    methods = {"training_step": training_step, "on_train_batch_end": on_train_batch_end, "validation_step": _validation_step}
    module = beside_lightning(methods, lambda module: module.seen, devices=devices, epochs=3)
    assert len(module.trainer.compiles) <= 7, "\n".join(one.reason[:300] for one in module.trainer.compiles)


def test_an_evaluation_step_reads_what_training_has_logged() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        module.log("loss", loss)
        return loss

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("ratio", module.loss(batch) / module.trainer.callback_metrics.get("loss", torch.tensor(1.0)))

    beside_lightning({"training_step": training_step, "validation_step": validation_step}, lambda module: [], epochs=3)


def test_steps_of_one_dispatch_go_one_by_one() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        return _value_of_the_last_step(module, module.loss(batch))

    found = []
    for steps in (1, 4):
        module = module_of(systolic, {"training_step": training_step}, lambda module: None)
        trainer_of(systolic, steps_per_dispatch=steps, max_epochs=2).fit(module, loader(96, 1))
        found.append([p.detach().tolist() for p in module.parameters()])
    assert found[0] == found[1]
