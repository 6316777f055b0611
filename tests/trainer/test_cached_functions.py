"""Functions under `functools.lru_cache` that make masks and tables: called once, as under Lightning, and usable after a step."""

from __future__ import annotations

import enum
import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning
from torch import nn

T = torch.Tensor
calls: list[Any] = []


class Kind(enum.Enum):
    LOWER, UPPER = 0, 1


@functools.cache
def mask(size: int, dtype: torch.dtype, device: torch.device) -> T:
    calls.append(size)
    return torch.tril(torch.ones(size, size, dtype=dtype, device=device))


@functools.cache
def mask_of(shape: tuple[int, ...], *, kind: Kind) -> T:
    calls.append(shape)
    ones = torch.ones(shape[-1], shape[-1])
    return torch.tril(ones) if kind is Kind.LOWER else torch.triu(ones)


@functools.lru_cache
def noise(size: int) -> T:
    calls.append(size)
    return torch.rand(size)


@functools.lru_cache(maxsize=1)
def scaled(x: T) -> T:
    calls.append("scaled")
    return x * 2


class Scales(nn.Module):
    """A layer whose methods are cached."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def places(self, size: int) -> T:
        return torch.arange(size).flip(0)

    @staticmethod
    @functools.lru_cache
    def table(size: int) -> T:
        return torch.linspace(0.5, 1, size)

    def forward(self, x: T) -> T:
        return x * self.weight[self.places(x.shape[1])] * self.table(x.shape[1])


USES = {
    "mask": lambda module, x: x @ mask(x.shape[1], x.dtype, x.device),
    "keywords": lambda module, x: x @ mask_of((8, x.shape[1]), kind=Kind.UPPER) + x @ mask_of((8, 4), kind=Kind.LOWER),
    "random": lambda module, x: x + noise(x.shape[1]),
    "methods": lambda module, x: module.scales(x),
    "of a tensor": lambda module, x: scaled(x),
}
"""What a step makes of its input."""


def prepare(module: Any) -> None:
    module.scales = Scales()


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", USES)
def test_cached_functions_give_what_they_give_under_lightning(name: str, devices: int) -> None:
    def loss(module: Any, batch: Any) -> T:
        return F.cross_entropy(module(USES[name](module, batch[0])), batch[1])

    def training_step(module: Any, batch: Any, i: int) -> T:
        return loss(module, batch)

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", loss(module, batch))

    def on_fit_start(module: Any) -> None:
        calls.clear()
        torch.manual_seed(5)
        for one in (mask, mask_of, noise, scaled, Scales.places, Scales.table):
            one.cache_clear()

    def on_fit_end(module: Any) -> None:
        device = torch.device("cpu")
        values = [mask(4, torch.float32, device), mask_of((8, 4), kind=Kind.UPPER), noise(4), Scales.table(4)]
        module.seen += [value.tolist() for value in values if name != "random" or value.dim() == 1]

    methods = {
        "training_step": training_step, "validation_step": validation_step, "on_fit_start": on_fit_start, "on_fit_end": on_fit_end,
    }  # fmt: skip
    found: list[Any] = []

    def held(module: Any) -> Any:
        found.append(sum(call != "scaled" for call in calls))
        return module.seen

    beside_lightning(methods, held, prepare=prepare, devices=devices)
    assert found[0] == found[1], "each is called once for each of its arguments"
