"""Whatever changes between two steps, wherever it is kept: the next step uses it, as under Lightning."""

from __future__ import annotations

import argparse
import enum
import itertools
import queue
from collections.abc import Callable
from typing import Any

import host_settings
import numpy as np
import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, trainer_of

import systolic

T = torch.Tensor


class Mode(enum.Enum):
    LOW = 1
    HIGH = 2


class Plain:
    """An object of the user's, of no special kind."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Decay:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return 1 / (1 + self.calls)


def scaled(loss: T) -> T:
    return loss * scaled.weight  # type: ignore[attr-defined]


def shrinking(loss: T, state: dict[str, float] = {"w": 1.0}) -> T:  # noqa: B006 - a default that is written to
    state["w"] *= 0.7
    return loss * state["w"]


ARGUMENTS = argparse.Namespace(alpha=1.0)
TENSOR = torch.tensor(1.0)
ARRAY = np.array([1.0, 2.0])


def _set(holder: Any, name: str, value: Any) -> Callable[[Any], None]:
    return lambda module: setattr(holder, name, value)


def _shrunk(holder: Any, name: str) -> Callable[[Any, int], None]:
    return lambda module, i: setattr(holder, name, getattr(holder, name) * 0.7)


Case = tuple[Callable[[Any], Any], Callable[[Any, int], Any], Callable[[Any, T], T]]


def _nested(module: Any) -> None:
    module.held = Plain(inner=Plain(w=1.0), by_name={"v": 1.0}, rows=[1.0], mode="a", tensor=torch.tensor(1.0), kind=Mode.LOW)


def _change_nested(module: Any, i: int) -> None:
    held = module.held
    held.inner.w *= 0.7
    held.by_name["v"] *= 0.9
    held.rows[0] *= 0.8
    held.mode = "b" if i else "a"
    held.kind = Mode.HIGH if i == 2 else Mode.LOW
    held.tensor = held.tensor * 0.9


def _use_nested(module: Any, loss: T) -> T:
    held = module.held
    factor = held.inner.w * held.by_name["v"] * held.rows[0] * (2 if held.mode == "b" else 1) * held.kind.value
    return loss * factor * held.tensor


def _write_in_place(module: Any, i: int) -> None:
    module.held.tensor.mul_(0.7)


def _change_arrays(module: Any, i: int) -> None:
    if i == 2:  # each value has a program
        ARRAY[:] *= 0.7
        module.array *= 0.8


CASES: dict[str, Case] = {
    "file": (_set(host_settings, "alpha", 1.0), _shrunk(host_settings, "alpha"), lambda m, loss: loss * host_settings.alpha),
    "function of a file": (
        _set(host_settings, "alpha", 1.0),
        _shrunk(host_settings, "alpha"),
        lambda m, loss: loss * host_settings.current_alpha(),
    ),
    "class of a file": (
        _set(host_settings.Options, "beta", 1.0),
        _shrunk(host_settings.Options, "beta"),
        lambda m, loss: loss * host_settings.Options.beta,
    ),
    "attribute of a function": (_set(scaled, "weight", 1.0), _shrunk(scaled, "weight"), lambda m, loss: scaled(loss)),
    "default of a function": (
        lambda m: shrinking.__defaults__[0].update(w=1.0),  # type: ignore[index]
        lambda m, i: None,
        lambda m, loss: shrinking(loss),
    ),
    "arguments of the command": (
        lambda m: setattr(ARGUMENTS, "alpha", 1.0),
        _shrunk(ARGUMENTS, "alpha"),
        lambda m, loss: loss * ARGUMENTS.alpha,
    ),
    "another tensor in a file": (
        _set(host_settings, "weight", torch.tensor(1.0)),
        lambda m, i: setattr(host_settings, "weight", host_settings.weight * 0.7),
        lambda m, loss: loss * host_settings.weight,
    ),
    "another tensor in a class": (
        _set(host_settings.Options, "weight", torch.tensor(1.0)),
        lambda m, i: setattr(host_settings.Options, "weight", host_settings.Options.weight * 0.7),
        lambda m, loss: loss * host_settings.Options.weight,
    ),
    "tensor of the file": (lambda m: TENSOR.fill_(1.0), lambda m, i: TENSOR.mul_(0.7), lambda m, loss: loss * TENSOR),
    "arrays": (
        lambda m: (ARRAY.__setitem__(slice(None), [1.0, 2.0]), setattr(m, "array", np.ones(3))),
        _change_arrays,
        lambda m, loss: loss * ARRAY[0] + torch.from_numpy(m.array).sum().float() * m.outer.weight.sum() * 0.1,
    ),
    "nested objects": (_nested, _change_nested, _use_nested),
    "tensor in an object": (_nested, _write_in_place, _use_nested),
    "counting objects": (
        lambda m: setattr(m, "held", Plain(one=Decay(), more={"x": Decay()})),
        lambda m, i: None,
        lambda m, loss: loss * m.held.one() + loss * m.held.more["x"](),
    ),
    "group of parameters": (
        lambda m: None,
        lambda m, i: (
            m.trainer.optimizers[0].add_param_group({"params": m.outer.parameters(), "lr": 0.01})
            if i == 2 and m.current_epoch == 0
            else None
        ),
        lambda m, loss: loss,
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_the_next_step_uses_it(name: str) -> None:
    prepare, change, use = CASES[name]

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = use(module, module.loss(batch))
        module.seen.append(loss.detach())
        return loss

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        change(module, i)

    def configure_optimizers(module: Any) -> torch.optim.Optimizer:
        parameters = module.inner.parameters() if name == "group of parameters" else module.parameters()
        return torch.optim.SGD(parameters, 0.1)

    methods = {
        "training_step": training_step,
        "on_train_batch_end": on_train_batch_end,
        "configure_optimizers": configure_optimizers,
    }
    beside_lightning(methods, lambda module: [float(loss) for loss in module.seen], prepare=prepare)


def _fit(step: Callable[[Any, Any, int], Any], prepare: Callable[[Any], None]) -> systolic.Trainer:
    module = module_of(systolic, {"training_step": step}, prepare)
    trainer = trainer_of(systolic, max_epochs=2)
    trainer.fit(module, loader(48, 1))
    return trainer


def test_changes_of_objects_ask_for_few_traces() -> None:
    trainer = _fit(
        lambda module, batch, i: module.loss(batch) * module.held.one() * module.held.more["x"](),
        lambda module: setattr(module, "held", Plain(one=Decay(), more={"x": Decay()})),
    )
    assert sum(one.is_new_executable for one in trainer.compiles) <= 2, [one.reason for one in trainer.compiles]


@pytest.mark.parametrize(
    ("what", "prepare", "step"),
    [
        ("next element", lambda m: setattr(m, "extra", iter(loader(48, 3))), lambda m, b, i: m.loss(next(m.extra))),
        ("next element", lambda m: setattr(m, "extra", itertools.count(1)), lambda m, b, i: m.loss(b) * next(m.extra)),
        ("queue", lambda m: setattr(m, "extra", queue.Queue()), lambda m, b, i: m.loss(b) * m.extra.get()),
    ],
)
def test_what_an_iterator_gives_next_is_refused(what: str, prepare: Any, step: Any) -> None:
    with pytest.raises(systolic.CaptureError, match=what):
        _fit(step, prepare)


def test_iterators_that_the_step_makes_are_its_own() -> None:
    _fit(lambda m, b, i: m.loss(b) * next(iter([1.0])) + next(m.parameters()).sum() * 0.0, lambda module: None)


def test_a_batch_taken_between_the_steps_is_the_steps() -> None:
    def on_train_batch_start(module: Any, batch: Any, i: int) -> None:
        module.extra = next(module.batches)[0]

    def training_step(module: Any, batch: Any, i: int) -> T:
        module.seen.append(module.extra.mean())
        return module.loss(batch) + module(module.extra).square().mean()

    def prepare(module: Any) -> None:
        module.batches = itertools.cycle(list(loader(48, 3)))

    methods = {"on_train_batch_start": on_train_batch_start, "training_step": training_step}
    beside_lightning(methods, lambda module: [float(value) for value in module.seen], prepare=prepare)
