"""Attributes that a step sets without a look at them, and hooks set to something else between steps; equal to Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain

T = torch.Tensor
Case = tuple[dict[str, Any], Callable[[Any, T, int], None], dict[str, Callable[[int], Any]]]
"""Attributes at first, what a step sets, and to what a hook sets attributes after it."""


def _flag(module: Any, loss: T, i: int) -> None:
    module.flag = True


def _several(module: Any, loss: T, i: int) -> None:
    module.k, module.text, module.values = 3, "x", [1, 2]


def _loss(module: Any, loss: T, i: int) -> None:
    module.last = loss.detach()


def _logs(module: Any, loss: T, i: int) -> None:
    module.logs = {"loss": loss.detach(), "n": 4}


def _numbers(module: Any, loss: T, i: int) -> None:
    module.number, module.epoch = i, module.current_epoch


def _mode(module: Any, loss: T, i: int) -> None:
    module.mode = module.training


def _zero(i: int) -> T:
    return torch.zeros(())


CASES: dict[str, Case] = {
    "a flag that stands": ({"flag": True}, _flag, {"flag": lambda i: False}),
    "a flag that does not": ({"flag": False}, _flag, {"flag": lambda i: False}),
    "plain values": (
        {"k": 3, "text": "x", "values": [1, 2]},
        _several,
        {"k": lambda i: i, "text": lambda i: "y", "values": lambda i: [i]},
    ),
    "a tensor in place of None": ({"last": None}, _loss, {"last": lambda i: None}),
    "a tensor in place of one": ({"last": torch.zeros(())}, _loss, {"last": _zero}),
    "None in place of a tensor": ({"last": torch.zeros(())}, _loss, {"last": lambda i: None}),
    "a number in place of a tensor": ({"last": torch.zeros(())}, _loss, {"last": float}),
    "a dict in place of None": ({"logs": None}, _logs, {"logs": lambda i: None}),
    "a dict in place of one": (
        {"logs": {"loss": torch.zeros(()), "n": 4}}, _logs, {"logs": lambda i: {"loss": torch.zeros(()), "n": 4}}
    ),
    "numbers of the loop": ({"number": 0, "epoch": 0}, _numbers, {"number": lambda i: -1, "epoch": lambda i: -1}),
    "the mode": ({"mode": True}, _mode, {"mode": lambda i: None}),
}  # fmt: skip


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("every", [1, 3, 100])
def test_what_a_step_sets_is_set_in_every_step(name: str, every: int) -> None:
    attributes, sets, resets = CASES[name]

    def training_step(module: Any, batch: Any, i: int) -> T:
        loss = module.loss(batch)
        sets(module, loss, i)
        return loss

    def reset(module: Any, i: int) -> None:
        module.seen.append(plain([getattr(module, name) for name in attributes]))
        for name, value in resets.items():
            setattr(module, name, value(i))

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        if i % every == every - 1:
            reset(module, i)

    def on_train_epoch_end(module: Any) -> None:
        if every == 100:
            reset(module, 0)

    hooks = {"on_train_batch_end": on_train_batch_end, "on_train_epoch_end": on_train_epoch_end}
    beside_lightning(
        {"training_step": training_step, **hooks},
        lambda module: plain([module.seen, [getattr(module, name) for name in attributes]]),
        prepare=lambda module: vars(module).update(attributes),
        epochs=3,
        advice=False,
    )
