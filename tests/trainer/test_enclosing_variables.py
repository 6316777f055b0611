"""Settings in variables of the function that made a function, and in classes, which a module has; equal to Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain

T = torch.Tensor
Prepare = Callable[[Any], None]


def _keep(module: Any, scale: Callable[[Any], Any], between: Callable[[], Any]) -> None:
    module.scale = scale
    module.__dict__["between"] = between


def in_a_dict(module: Any) -> None:
    settings = {"k": 1.0}
    _keep(module, lambda loss: loss * settings["k"], lambda: settings.update(k=settings["k"] * 0.5))


def in_a_variable(module: Any) -> None:
    k = 1.0

    def halve() -> None:
        nonlocal k
        k *= 0.5

    _keep(module, lambda loss: loss * k, halve)


def in_a_function_within(module: Any) -> None:
    settings = {"k": 1.0}

    def inner(loss: T) -> T:
        return loss * settings["k"]

    _keep(module, lambda loss: inner(loss) + 0.0, lambda: settings.update(k=settings["k"] * 0.5))


def in_a_tensor(module: Any) -> None:
    k = torch.ones(())
    _keep(module, lambda loss: loss * k, lambda: k.mul_(0.5))


def a_flag(module: Any) -> None:
    is_halved = False

    def turn() -> None:
        nonlocal is_halved
        is_halved = not is_halved

    _keep(module, lambda loss: loss * 0.5 if is_halved else loss, turn)


def another_function(module: Any) -> None:
    def with_k(k: float) -> None:
        _keep(module, lambda loss: loss * k, lambda: with_k(k * 0.5))

    with_k(1.0)


def counted_in_the_step(module: Any) -> None:
    calls = 0

    def scale(loss: T) -> T:
        nonlocal calls
        calls += 1
        return loss * (1 + 0.1 * calls)

    _keep(module, scale, lambda: calls)


def averaged_in_the_step(module: Any) -> None:
    average: Any = None

    def scale(loss: T) -> T:
        nonlocal average
        average = loss.detach() if average is None else 0.9 * average + 0.1 * loss.detach()
        return loss / average

    _keep(module, scale, lambda: float(average))


def calls_itself(module: Any) -> None:
    def scale(loss: T, times: int = 2) -> T:
        return loss if times == 0 else scale(loss * 1.1, times - 1)

    _keep(module, scale, lambda: None)


def in_a_class(module: Any) -> None:
    class Config:
        k, is_halved = 1.0, False

    def change() -> None:
        Config.k, Config.is_halved = Config.k * 0.5, not Config.is_halved

    module.config = Config
    _keep(module, lambda loss: loss * module.config.k * (0.5 if module.config.is_halved else 1), change)


def counted_in_a_class(module: Any) -> None:
    class Config:
        k = 1.0

    def scale(loss: T) -> T:
        module.config.k += 0.1
        return loss * module.config.k

    module.config = Config
    _keep(module, scale, lambda: Config.k)


class Settings:
    def __init__(self) -> None:
        self.k, self.mode = 1.0, "a"


def in_an_object(module: Any) -> None:
    settings = Settings()

    def change() -> None:
        settings.k, settings.mode = settings.k * 0.9, "b" if settings.mode == "a" else "a"

    _keep(module, lambda loss: loss * settings.k * (1.0 if settings.mode == "a" else 0.5), change)


def counted_in_a_hook(module: Any) -> None:
    calls = 0

    def hook(layer: Any, args: Any, output: T) -> T:
        nonlocal calls
        calls += 1
        return output * (1 + 0.1 * calls)

    module.inner.register_forward_hook(hook)
    _keep(module, lambda loss: loss, lambda: calls)


def the_last_one_in_a_hook(module: Any) -> None:
    last: Any = None

    def hook(layer: Any, args: Any, output: T) -> T:
        nonlocal last
        mixed = output if last is None else 0.9 * output + 0.1 * last
        last = output.detach()
        return mixed

    module.inner.register_forward_hook(hook)
    _keep(module, lambda loss: loss, lambda: float(last.sum()))


def a_function_of_a_hook(module: Any) -> None:
    function: Callable[[T], T] = torch.relu

    def turn() -> None:
        nonlocal function
        function = torch.tanh if function is torch.relu else torch.relu

    module.inner.register_forward_hook(lambda layer, args, output: function(output))
    _keep(module, lambda loss: loss, turn)


def a_setting_of_a_hook(module: Any) -> None:
    k, mode = 1.0, "a"

    def change() -> None:
        nonlocal k, mode
        k, mode = k * 0.9, "b" if mode == "a" else "a"

    module.inner.register_forward_hook(lambda layer, args, output: output * k if mode == "a" else output - k)
    _keep(module, lambda loss: loss, change)


_KINDS: list[Prepare] = [
    in_a_dict, in_a_variable, in_a_function_within, in_a_tensor, a_flag, another_function, counted_in_the_step,
    averaged_in_the_step, calls_itself, in_a_class, counted_in_a_class, in_an_object, counted_in_a_hook,
    the_last_one_in_a_hook, a_function_of_a_hook, a_setting_of_a_hook,
]  # fmt: skip


def _step(module: Any, batch: Any, i: int) -> T:
    return module.scale(module.loss(batch))


def _between(module: Any, *_: Any) -> None:
    module.seen.append(plain(module.between()))


@pytest.mark.parametrize("prepare", _KINDS)
@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_train_batch_end"])
def test_what_a_function_keeps(prepare: Prepare, hook: str) -> None:
    methods = {"training_step": _step, hook: _between}
    beside_lightning(methods, lambda module: plain([module.seen, module.state_dict()]), prepare=prepare, epochs=3, advice=False)


@pytest.mark.parametrize("prepare", [in_a_variable, averaged_in_the_step])
def test_on_four_cores(prepare: Prepare) -> None:
    methods = {"training_step": _step, "on_train_epoch_end": _between}
    beside_lightning(methods, lambda module: plain([module.seen, module.state_dict()]), prepare=prepare, devices=4)


def test_hyperparameters_beside_notes_ask_for_no_trace() -> None:
    def step(module: Any, batch: Any, i: int) -> T:
        return module.loss(batch) * module.hparams.scale

    def note(module: Any, outputs: Any, batch: Any, i: int) -> None:
        module.seen.append(float(outputs["loss"]))

    methods = {"training_step": step, "on_train_batch_end": note}
    module = beside_lightning(
        methods, lambda module: plain(module.seen), prepare=lambda module: module.save_hyperparameters({"scale": 0.5})
    )
    assert len(module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]
