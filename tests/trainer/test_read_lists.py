"""Lists that a step appends to, reads and empties again: a program for each length, not for each step; against Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning

T = torch.Tensor


def of_numbers(self: Any, batch: Any, i: int) -> T:
    loss = self.loss(batch)
    self.seen.append(loss.item())
    if len(self.seen) == 4:
        self.log("mean", sum(self.seen) / len(self.seen))
        self.log("last", self.seen[-1] - self.seen[-2])
        self.seen.clear()
    return loss


def of_the_last_ones(self: Any, batch: Any, i: int) -> T:
    """What is read decides nothing, but is computed with."""
    loss = self.loss(batch)
    self.seen.append(loss.item())
    if len(self.seen) > 3:
        self.seen.pop(0)
    return loss * (1 + 0.1 * max(self.seen))


def of_tensors(self: Any, batch: Any, i: int) -> T:
    """Another list each time."""
    loss = self.loss(batch)
    self.seen.append(loss.detach())
    if len(self.seen) >= 3:
        self.log("mean", torch.stack(self.seen).mean())
        self.seen = []
    return loss


@pytest.mark.thin(2)
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize(("step", "most"), [(of_numbers, 5), (of_the_last_ones, 8), (of_tensors, 4)])
def test_a_program_for_each_length(step: Callable[[Any, Any, int], T], most: int, devices: int) -> None:
    held = lambda module: [float(one) for one in module.seen]  # noqa: E731
    module = beside_lightning({"training_step": step}, held, devices=devices, epochs=6)
    assert len(module.trainer.compiles) <= most, [one.reason for one in module.trainer.compiles]
