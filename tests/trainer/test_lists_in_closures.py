"""Lists and dicts in variables around functions and hooks, which steps fill; equal to Lightning, and traced no more than twice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, plain, trainer_of

import systolic

T = torch.Tensor
_AS = {
    "tensors": lambda value: value.detach(),
    "with history": lambda value: value,
    "numbers": lambda value: value.mean().item(),
    "arrays": lambda value: value.detach().numpy(),
    "in dicts": lambda value: {"mean": value.detach().mean()},
}


def _around_a_function(module: Any, kept: Callable[[T], Any]) -> None:
    values: list[Any] = []
    module.__dict__["note"] = lambda value: values.append(kept(value))
    module.__dict__["values"] = lambda: list(values)
    module.__dict__["clear"] = values.clear


def _around_a_method(module: Any, kept: Callable[[T], Any]) -> None:
    values: list[Any] = []

    class Recorder:
        def __call__(self, value: T) -> None:
            values.append(kept(value))

    module.__dict__["note"] = Recorder()
    module.__dict__["values"] = lambda: list(values)
    module.__dict__["clear"] = values.clear


def _around_a_hook(module: Any, kept: Callable[[T], Any]) -> None:
    values: list[Any] = []

    def hook(layer: Any, args: Any, output: T) -> None:
        values.append(kept(output))

    module.inner.register_forward_hook(hook)
    module.__dict__["note"] = lambda value: None
    module.__dict__["values"] = lambda: list(values)
    module.__dict__["clear"] = values.clear


def _step(module: Any, batch: Any, i: int) -> T:
    loss = module.loss(batch)
    module.note(loss)
    return loss


@pytest.mark.thin(4)
@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_train_epoch_end"])
@pytest.mark.parametrize("kept", _AS)
@pytest.mark.parametrize("place", [_around_a_function, _around_a_method, _around_a_hook])
def test_what_a_step_notes(place: Callable[..., None], kept: str, hook: str, clears: bool) -> None:
    def read(module: Any, *_: Any) -> None:
        module.seen.append(plain(module.values()))
        if clears:
            module.clear()

    module = beside_lightning(
        {"training_step": _step, hook: read},
        lambda module: plain([module.seen, module.values()]),
        prepare=lambda module: place(module, _AS[kept]),
        epochs=3,
        advice=False,
    )
    reasons = [one.reason for one in module.trainer.compiles if one.trace_seconds > 0]
    assert len(reasons) <= 2, reasons


def test_what_a_hook_puts_in_a_dict() -> None:
    def prepare(module: Any) -> None:
        features: dict[str, T] = {}

        def named(name: str) -> Callable[..., None]:
            def hook(layer: Any, args: Any, output: T) -> None:
                features[name] = output

            return hook

        for name, layer in module.named_children():
            layer.register_forward_hook(named(name))
        module.__dict__["features"] = features

    def step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        return loss + 0.01 * sum(one.pow(2).mean() for one in module.features.values())

    def read(module: Any, *_: Any) -> None:
        module.seen.append({name: float(one.sum()) for name, one in module.features.items()})

    methods = {"training_step": step, "on_train_batch_end": read}
    beside_lightning(methods, lambda module: plain(module.seen), prepare=prepare, epochs=3)


@pytest.mark.parametrize("library", ["lightning", "systolic"])
@pytest.mark.parametrize("failing", ["at first", "later"])
def test_notes_of_a_step_that_fails_stay(library: str, failing: str) -> None:
    around: list[int] = []

    def step(module: Any, batch: Any, i: int) -> T:
        around.append(i)
        module.seen.append("begun")
        if len(batch[0]) < (5 if failing == "at first" else 4):
            raise ValueError("too few")
        return module.loss(batch)

    of = lightning if library == "lightning" else systolic
    module, trainer = module_of(of, {"training_step": step}, lambda module: None), trainer_of(of)
    batches = loader(11, 0, batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if library == "lightning" else "error")
        with pytest.raises(ValueError, match="too few"):
            trainer.fit(module, batches)
    assert around == ([0] if failing == "at first" else [0, 1, 2])
    assert module.seen == ["begun"] * len(around)


def test_a_list_that_has_become_large_when_a_step_is_traced_again() -> None:
    def change(module: Any, *_: Any) -> None:
        module.inner.bias.requires_grad_(module.current_epoch % 2 == 0)
        module.seen.append(len(module.values()))

    methods = {"training_step": _step, "on_train_epoch_start": change}
    prepare = lambda module: _around_a_function(module, _AS["numbers"])  # noqa: E731
    beside_lightning(methods, lambda module: plain([module.seen, module.values()]), prepare=prepare, epochs=30, advice=False)
