"""Numbers out of schedules that are NumPy's arrays: as under Lightning, in type and value, and no trace for each of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from beside_lightning import beside_lightning, plain

import systolic

SCHEDULE: Any = np.linspace(1.3, 0.4, 10)
KINDS: dict[str, Callable[[float], Any]] = {
    "float64": np.float64, "float32": np.float32, "int64": lambda value: np.int64(10 * value)
}  # fmt: skip
USES: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "times a tensor": lambda m, x: [m * x, x * m, 1 - m * x, x / m, x**m, m * x.double(), m * x.half()],
    "beside a tensor": lambda m, x: [torch.where(x > m, m, x), x.clamp(max=float(m)), x.lerp(x + 1, m), m < x],
    "a number": lambda m, x: [m, m * 2.5 / 3 + 0.1, 1 - m, m / 7, -m, abs(m), m**2, m * m, 2 * m],
    "numbers of NumPy's": lambda m, x: [m * np.float64(0.3), np.float32(0.3) * m, m + np.int64(2), np.float64(0.3) - m],
    "a tensor of it": lambda m, x: [torch.tensor(m), torch.as_tensor(m), torch.tensor([m, m]), torch.full((2,), m)],
    "functions of NumPy": lambda m, x: [
        np.sqrt(m),
        np.exp(-m),
        0.5 * (1 + np.cos(np.pi * m)),
        np.minimum(m, 3),
        np.power(m, 2),
    ],
    "clipped": lambda m, x: np.clip(m, 1, 7),
    "functions of Python": lambda m, x: [float(m) / 3, m.item() / 3, math.cos(m), sum([m, m]), round(m / 3, 1), math.sqrt(m)],
    "its class": lambda m, x: [isinstance(m, k) for k in (float, int, np.floating, np.integer, np.generic)] + [str(m.dtype)],
    "conditions": lambda m, x: [x * 2 if m >= 0 else x, max(m, -1.0)],
}


def typed(value: Any) -> Any:
    """A value, with the class or the dtype of every number."""
    if isinstance(value, list):
        return [typed(one) for one in value]
    return [str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__, plain(value)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
def test_attribute_of_a_hook(use: str, kind: str) -> None:
    def on_train_batch_start(self: Any, batch: Any, i: int) -> None:
        self.m = KINDS[kind](SCHEDULE[self.global_step])

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.kept = USES[use](self.m, loss.detach())
        self.log("m", float(self.m))
        return loss * self.m

    def on_train_batch_end(self: Any, outputs: Any, batch: Any, i: int) -> None:
        self.seen.append(typed(self.kept))

    methods = {
        "on_train_batch_start": on_train_batch_start, "training_step": training_step, "on_train_batch_end": on_train_batch_end
    }  # fmt: skip
    module = beside_lightning(methods, lambda one: one.seen)
    assert len(module.trainer.compiles) <= 3


@pytest.mark.parametrize("name", ["lr", "weight_decay", "momentum"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_schedules_of_an_optimizer(name: str, kind: Callable[[float], Any]) -> None:
    def on_train_batch_start(self: Any, batch: Any, i: int) -> None:
        for group in self.optimizers().param_groups:
            group[name] = kind(SCHEDULE[self.global_step] / 5)

    def configure_optimizers(self: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.1, weight_decay=0.1)

    methods = {"on_train_batch_start": on_train_batch_start, "configure_optimizers": configure_optimizers}
    module = beside_lightning(methods, lambda one: typed(one.optimizers().param_groups[0][name]))
    assert len(module.trainer.compiles) <= 2


def test_same_number_made_anew() -> None:
    def on_train_batch_start(self: Any, batch: Any, i: int) -> None:
        self.m = np.float32(0.3)

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        return self.loss(batch) * self.m

    methods = {"on_train_batch_start": on_train_batch_start, "training_step": training_step}
    module = beside_lightning(methods, lambda one: typed(one.m))
    assert len(module.trainer.compiles) == 1


def test_in_containers_and_written_by_the_step() -> None:
    def prepare(self: Any) -> None:
        self.table = {"a": [np.float64(0.5), np.float32(0.5)]}
        self.sum = np.float32(0.1)

    def on_train_batch_start(self: Any, batch: Any, i: int) -> None:
        self.table["a"][:] = [np.float64(SCHEDULE[self.global_step]), np.float32(SCHEDULE[self.global_step])]

    def training_step(self: Any, batch: Any, i: int) -> torch.Tensor:
        self.sum = self.sum * 0.9 + self.table["a"][1] / 3
        return self.loss(batch) * self.table["a"][0] + self.sum

    def on_train_batch_end(self: Any, outputs: Any, batch: Any, i: int) -> None:
        self.seen.append(typed(self.sum))

    methods = {
        "on_train_batch_start": on_train_batch_start, "training_step": training_step, "on_train_batch_end": on_train_batch_end
    }  # fmt: skip
    module = beside_lightning(methods, lambda one: one.seen, prepare=prepare)
    assert len(module.trainer.compiles) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_argument_of_a_function(kind: str) -> None:
    def scaled(x: torch.Tensor, number: Any) -> Any:
        return x * number, torch.tensor(number), number / 3

    function, x = systolic.jit(scaled), torch.arange(3.0)
    for value in SCHEDULE:
        number = KINDS[kind](value)
        assert typed(list(function(x, number))) == typed(list(scaled(x, number)))
