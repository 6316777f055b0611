"""Ranges that begin at a number of the host or of the devices and are always as long: one program, equal to Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning

T = torch.Tensor


def of_batch(module: Any, i: int, n: int) -> T:
    return torch.arange(i * n, i * n + n)


def of_batch_in_other_words(module: Any, i: int, n: int) -> T:
    return torch.arange(start=i * n, end=(i + 1) * n, step=1, dtype=torch.int64, device="cpu")


def of_every_second(module: Any, i: int, n: int) -> T:
    return torch.arange((i + 1) * 2, i * 2 + 2 * n, 2)


def backwards(module: Any, i: int, n: int) -> T:
    return torch.arange(i + n, i, -1)


def of_steps(module: Any, i: int, n: int) -> T:
    return torch.arange(module.global_step, module.global_step + 5)


def of_pointer(module: Any, i: int, n: int) -> T:
    pointer = int(module.pointer)
    module.pointer[0] = (pointer + n) % 64
    return torch.arange(pointer, pointer + n) % 64


def of_no_number(module: Any, i: int, n: int) -> T:
    return torch.arange(i, i)


RANGES: dict[str, Callable[[Any, int, int], T]] = {
    one.__name__: one
    for one in (of_batch, of_batch_in_other_words, of_every_second, backwards, of_steps, of_pointer, of_no_number)
}


def prepare(module: Any) -> None:
    module.register_buffer("table", torch.zeros(64))
    module.register_buffer("pointer", torch.zeros(1, dtype=torch.int64))


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("name", RANGES)
def test_a_range_that_is_always_as_long_has_one_program(name: str, devices: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        losses = F.cross_entropy(module(batch[0]), batch[1], reduction="none")
        places = RANGES[name](module, i, len(batch[0]))
        module.table[places] = 0.5 * module.table[places] + losses.detach().mean() * (1 + places)
        module.seen.append(places)
        return losses.mean() + module.table.mean()

    held: Callable[[Any], Any] = lambda module: [module.table.tolist(), [one.tolist() for one in module.seen]]  # noqa: E731
    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices)
    assert sum(one.is_new_executable for one in module.trainer.compiles) == 1, [one.reason for one in module.trainer.compiles]
