"""Python computes with `global_step` in a step: equal to eager PyTorch, with one program for most of it."""

from __future__ import annotations

import fractions
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from beside_lightning import beside_lightning
from torch.utils.data import DataLoader
from trainer.three_ways import quiet_trainer

import systolic as L

Number = Callable[[int, float], Any]
ONE_PROGRAM: dict[str, Number] = {
    "remainder by one": lambda s, t: t % 1,
    "remainder": lambda s, t: t % 0.3 + 1.7 % (t + 1),
    "remainder of a negative": lambda s, t: -t % 1 + -s % 3,
    "whole part": lambda s, t: t // 0.5 + (t + 0.1) // 1,
    "whole numbers": lambda s, t: s // 3 + s % 3 + s**2,
    "powers": lambda s, t: t**2 + t**0.5 + 0.9**s + 0.9**t,
    "cycle": lambda s, t: abs((s / 3 + 1) % 2 - 1),
    "logarithms": lambda s, t: math.log(s + 1) + math.log2(s + 1) + math.log10(s + 1) + math.log(s + 1, 3),
    "functions": lambda s, t: math.exp(-t) + math.sqrt(s) + math.sin(t) + math.tanh(t) + math.hypot(s, t) + math.pow(t, 3),
    "whole numbers of real ones": lambda s, t: math.floor(t) + math.ceil(t) + math.trunc(-t) + round(t),
    "rounded": lambda s, t: round(t, 1),
    "float": lambda s, t: float(s) / 3 + float(t),
    "bits": lambda s, t: (s & 3) + (s | 8) + (s ^ 5) + (s << 1) + (s >> 1),
    "divmod": lambda s, t: divmod(s, 3)[0] + divmod(t, 0.5)[1],
    "kinds": lambda s, t: isinstance(s, int) + 2 * isinstance(t, float),
    "of a tensor": lambda s, t: torch.tensor(t).exp().item(),
}
SEVERAL_PROGRAMS: dict[str, Number] = {
    "warm-up": lambda s, t: min(1.0, (s + 1) / 5) * 0.5 * (1 + math.cos(math.pi * t)),
    "of NumPy": lambda s, t: np.exp(-t) + np.cos(t) + np.sqrt(t) + np.clip(t, 0, 1) + np.minimum(t, 1.0) + np.power(0.9, s),
    "sums": lambda s, t: sum([s, t, 1]) + max(s, 3) * min(t, 1.0),
    "int": lambda s, t: int(t) + int(-t),
    "if": lambda s, t: 1 if 2 < s <= 5 else 0,
    "if the remainder": lambda s, t: 2 if t % 1 < 0.3 else 1,
    "truth": lambda s, t: (2 if t else 1) + (not s),
    "places": lambda s, t: [1, 2, 3, 4][s % 4] + {0: 5, 1: 6, 2: 7}[s % 3],
    "length of text": lambda s, t: len(str(s)) + len(hex(s)),
    "text as a key": lambda s, t: {"0": 1, "1": 2}.get(str(s), 3),
    "number of text": lambda s, t: float(f"{t:.1f}"),
    "range": lambda s, t: sum(range(s)) + len([0] * s),
    "other functions": lambda s, t: math.erf(t) + math.gcd(s, 4) + math.atan2(t, 1) + math.fmod(t, 0.4) + math.log1p(s),
    "other functions of NumPy": lambda s, t: (
        np.interp(s, [0, 5, 10], [1.0, 0.5, 0.1]) + np.round(t, 1) + np.linspace(1, 0, 20)[s]
    ),
    "inverted bits": lambda s, t: ~s,
    "exact": lambda s, t: float(fractions.Fraction(s, 3)) + statistics.mean([s, t]),
}


def trained(number: Number, compiled: bool) -> tuple[list[float], torch.Tensor, int]:
    values: list[float] = []

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            value = number(self.global_step, self.global_step / 4)
            self.log("value", value)
            return self.layer(batch).mean() * (1 + 0.1 * value)

        def on_train_batch_end(self, *_: Any) -> None:
            values.append(float(self.trainer.callback_metrics["value"]))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    module = Module()
    trainer = quiet_trainer(compile=compiled)
    trainer.fit(module, DataLoader(torch.ones(36, 4), 4))
    return values, module.layer.weight.detach(), len(trainer.compiles)


@pytest.mark.filterwarnings("ignore:.*compiled again")  # where no other program will do
@pytest.mark.thin(6)
@pytest.mark.parametrize("name", [*ONE_PROGRAM, *SEVERAL_PROGRAMS])
def test_equals_eager_pytorch(name: str) -> None:
    number = (ONE_PROGRAM | SEVERAL_PROGRAMS)[name]
    expected, weight, _ = trained(number, compiled=False)
    values, compiled_weight, programs = trained(number, compiled=True)
    assert values == pytest.approx(expected, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(compiled_weight, weight, rtol=1e-5, atol=1e-6)
    assert name in SEVERAL_PROGRAMS or programs == 1


def _of_all_batches(module: Any) -> Any:
    return module.trainer.fit_loop.epoch_loop.total_batch_idx


def _of_steps(module: Any) -> Any:
    return module.trainer.fit_loop.epoch_loop._batches_that_stepped


def _of_the_epoch(module: Any) -> Any:
    return module.trainer.fit_loop.epoch_loop.batch_idx


@pytest.mark.parametrize("steps_per_dispatch", [1, 3])
@pytest.mark.parametrize("number", [_of_all_batches, _of_steps, _of_the_epoch])
def test_counters_of_the_loop_are_numbers_of_each_step(number: Callable[[Any], Any], steps_per_dispatch: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> torch.Tensor:
        factor = 2 if number(module) >= 4 else 1 + number(module)
        module.log("number", float(number(module)), on_step=False, on_epoch=True)
        return module.loss(batch) * factor

    module = beside_lightning({"training_step": training_step}, lambda module: [], steps_per_dispatch=steps_per_dispatch)
    assert len(module.trainer.compiles) <= 4, [one.reason for one in module.trainer.compiles]


@pytest.mark.parametrize("own", [True, False])
def test_steps_of_manual_optimization_count_at_once(own: bool) -> None:
    def training_step(module: Any, batch: Any, i: int) -> None:
        optimizer = module.optimizers()
        for _ in range(1 + i % 2):
            optimizer.zero_grad()
            steps = module.global_step if own else module.trainer.global_step
            loss = module.loss(batch) * (1 + 0.1 * steps)
            module.manual_backward(loss)
            optimizer.step()
        module.log("steps", float(module.global_step))
        module.log("late", 1.0 if module.global_step > 5 else 0.0)
        module.seen.append(module.global_step)

    def prepare(module: Any) -> None:
        module.automatic_optimization = False

    module = beside_lightning({"training_step": training_step}, lambda module: module.seen, prepare=prepare)
    assert module.seen[-1] == module.trainer.global_step == 8


@pytest.mark.parametrize("again", [False, True])
def test_steps_of_an_optimizer_that_is_not_to_count(again: bool) -> None:
    """GANs give the discriminator's optimizer functions of their own, in the place of those that count its steps."""

    def prepare(module: Any) -> None:
        module.automatic_optimization = False

    def training_step(module: Any, batch: Any, i: int) -> None:
        first, second = module.optimizers()
        second._on_before_step = second._on_after_step = lambda: None
        if again:
            first, second = module.optimizers()
        for optimizer in (first, second):
            optimizer.zero_grad()
            module.manual_backward(module.loss(batch))
            optimizer.step()
        module.log("step", float(module.global_step))
        module.seen.append(module.global_step)

    def on_train_batch_end(module: Any, *args: Any) -> None:
        module.seen.append((module.global_step, module.trainer.callback_metrics["step"].item()))

    def configure_optimizers(module: Any) -> Any:
        return [torch.optim.SGD(module.inner.parameters(), 0.1), torch.optim.SGD(module.outer.parameters(), 0.1)]

    beside_lightning(
        {
            "training_step": training_step,
            "on_train_batch_end": on_train_batch_end,
            "configure_optimizers": configure_optimizers,
        },
        lambda module: module.seen,
        prepare=prepare,
    )
