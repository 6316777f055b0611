"""Steps of a small classifier whose loss is made of the losses of the samples: compiled beside eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import systolic

T = torch.Tensor
Loss = Callable[[T, T], T]
"""From the losses of the samples and their classes."""


def step_of(loss_of: Loss, model: nn.Module, rate: float) -> Callable[[T, T], T]:
    optimizer = torch.optim.SGD(model.parameters(), rate)

    def step(x: T, y: T) -> T:
        loss = loss_of(F.cross_entropy(model(x), y, reduction="none"), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def require_equal_steps(loss_of: Loss, dtype: torch.dtype, rate: float, rtol: float, atol: float) -> list[T]:
    """Six steps must have the losses of eager PyTorch, and leave its weights; returns the batches' classes."""
    torch.manual_seed(0)
    model: Any = nn.Linear(4, 3, dtype=dtype)
    eager = copy.deepcopy(model)
    compiled, plain = systolic.jit(step_of(loss_of, model, rate)), step_of(loss_of, eager, rate)
    classes = []
    for _ in range(6):
        x, y = torch.randn(16, 4, dtype=dtype), torch.randint(0, 3, (16,))
        classes.append(y)
        torch.testing.assert_close(compiled(x, y), plain(x, y), rtol=rtol, atol=atol)
    torch.testing.assert_close(model.weight.detach(), eager.weight.detach(), rtol=rtol, atol=atol)
    return classes
