"""Gradients in evaluation steps, as of energies by positions: switched on in a hook, or in the step."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from beside_lightning import loader, module_of, require_equal, trainer_of

import systolic

T = torch.Tensor


def _forces(module: Any, batch: Any) -> T:
    x = batch[0].requires_grad_(True)
    energy = module(x).square().sum()
    return -torch.autograd.grad(energy, x, create_graph=True)[0]


def _switch(module: Any, *_: Any) -> None:
    torch.set_grad_enabled(True)


def _step(module: Any, batch: Any, i: int) -> None:
    module.log("force", _forces(module, batch).abs().mean())


def _with_grad(module: Any, batch: Any, i: int) -> None:
    with torch.enable_grad():
        _step(module, batch, i)


def _predicted(module: Any, batch: Any, i: int) -> T:
    return _forces(module, batch)


def _trained(module: Any, batch: Any, i: int) -> T:
    return module.loss(batch) + _forces(module, batch).square().mean()


def _found(library: Any, methods: dict[str, Callable[..., Any]], devices: int) -> Any:
    module = module_of(library, methods, lambda module: None)
    each = 16 // devices
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if library is lightning else "error")
        trainer = trainer_of(library, max_epochs=2, devices=devices, inference_mode=False)
        trainer.fit(module, loader(48, 1, each), loader(32, 2, each))
        validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
        tested = trainer.test(module, loader(32, 2, each), verbose=False)
        predicted = trainer.predict(module, loader(32, 2, each))
    weights = [p.detach().double().sum().item() for p in module.parameters()]
    return [validated, tested, torch.cat(predicted).double().sum().item(), weights, torch.is_grad_enabled()]


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("hook", ["model_eval", "start", "epoch_start", "batch_start", "step"])
def test_forces_are_those_of_lightning(hook: str, devices: int) -> None:
    stages = ("validation", "test", "predict")
    methods: dict[str, Any] = {"training_step": _trained, "validation_step": _step, "test_step": _step}
    methods["predict_step"] = _predicted
    if hook == "step":
        methods |= {"validation_step": _with_grad, "test_step": _with_grad, "predict_step": torch.enable_grad()(_predicted)}
    else:
        methods |= {f"on_{stage}_{hook}": _switch for stage in stages}
    theirs, ours = (_found(library, methods, of) for library, of in ((lightning, 1), (systolic, devices)))
    require_equal(ours, theirs)


def test_without_it_nothing_is_recorded() -> None:
    module = module_of(systolic, {"validation_step": _step}, lambda module: None)
    with pytest.raises(RuntimeError, match="does not require grad"):
        trainer_of(systolic, inference_mode=False).validate(module, loader(32, 2))


def test_inference_mode_cannot_be_switched_off_in_a_hook() -> None:
    module = module_of(systolic, {"validation_step": _step, "on_validation_start": _switch}, lambda module: None)
    with pytest.raises(RuntimeError, match="does not require grad"):
        trainer_of(systolic).validate(module, loader(32, 2))
