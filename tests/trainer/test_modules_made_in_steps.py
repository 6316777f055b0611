"""Modules that a step makes: copies of others, and new ones; the same values as under Lightning, in every later step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain
from torch import nn


class Part(nn.Module):
    """A module of the user's with each kind of state."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 4))
        self.tied = self.layers[0]
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()), persistent=False)
        self.settings = {"scale": 2.0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return self.layers(x) * self.weight * self.settings["scale"]


def _average(m: Any) -> None:
    if m.copy is None:
        m.copy = copy.deepcopy(m.part)
        return
    with torch.no_grad():
        own = dict(m.copy.named_parameters())
        for name, p in m.part.named_parameters():
            own[name].data.mul_(0.9).add_(p.data, alpha=0.1)


def _frozen(m: Any) -> None:
    if m.copy is None:
        m.copy = copy.deepcopy(m.part).eval().requires_grad_(False)


def _listed(m: Any) -> None:
    if m.steps in (1, 3):
        m.copies.append(copy.deepcopy(m.part))


def _constant(m: Any) -> None:
    if m.copy is None:
        m.copy = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))
        for p in m.copy.parameters():
            nn.init.constant_(p, 0.5)


def _recurrent(m: Any) -> None:
    if m.copy is None:
        m.copy = copy.deepcopy(m.memory)


def _in_every_step(m: Any) -> None:
    m.copy = copy.deepcopy(m.part)


MAKING: dict[str, Callable[[Any], None]] = {
    "average": _average,
    "frozen": _frozen,
    "listed": _listed,
    "constant": _constant,
    "recurrent": _recurrent,
    "in every step": _in_every_step,
}


def _held(module: nn.Module) -> Any:
    named = {name: [plain(p), isinstance(p, nn.Parameter), p.requires_grad] for name, p in module.named_parameters()}
    flags = [part.training for part in module.modules()]
    return [named, {name: plain(b) for name, b in module.named_buffers()}, flags, sorted(module.state_dict())]


@pytest.mark.parametrize("making", MAKING)
def test_a_module_made_in_a_step(making: str) -> None:
    make = MAKING[making]

    def prepare(module: Any) -> None:
        module.part, module.memory, module.copy, module.copies = Part(), nn.LSTM(4, 4, batch_first=True), None, []
        module.steps = 0

    def training_step(self: Any, batch: Any, i: int) -> Any:
        self.steps += 1
        x = self.part(batch[0]) + self.memory(batch[0][:, None])[0][:, 0]
        if self.global_step >= 2:
            make(self)
        if self.copy is not None:
            used = self.copy(batch[0][:, None])[0][:, 0] if making == "recurrent" else self.copy(batch[0])
            x = x + used
        return self.loss((x, batch[1]))

    def on_train_epoch_end(self: Any) -> None:
        made = [] if self.copy is None else [self.copy]
        self.seen.append([_held(one) for one in [*made, *self.copies]])

    methods = {"training_step": training_step, "on_train_epoch_end": on_train_epoch_end}
    module = beside_lightning(methods, lambda m: m.seen, prepare=prepare, epochs=3)
    if making != "in every step":  # another module's parameters are traced anew
        assert len(module.trainer.compiles) <= (10 if making == "listed" else 5), module.trainer.compiles
    made = [one for one in [module.copy, *module.copies] if one is not None]
    assert made
    assert all(type(p) is not torch.Tensor and p.device.type == "cpu" for one in made for p in one.parameters())
