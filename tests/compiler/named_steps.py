"""A training step, and the names of the ops in its program."""

from __future__ import annotations

import re

import jax
import torch
from torch import nn
from torch.optim import Optimizer

import systolic
from systolic.compiler import JitFunction


def training_step(model: nn.Module, optimizer: Optimizer, devices: int = 1) -> JitFunction[[torch.Tensor], torch.Tensor]:
    """A compiled step that makes a model's outputs small."""

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return systolic.jit(step, devices=jax.devices()[:devices])


def op_names(function: JitFunction[..., torch.Tensor]) -> set[str]:
    """The module part of every `op_name` in the optimized HLO."""
    program, arrays = function._called()
    with jax.enable_x64(True):
        compiled = program.function.lower(*program.arguments(arrays, function._engine.last_numbers)).compile()
    found = re.findall(r'op_name="jit\(step\)/([^"]*)"', compiled.as_text())
    return {name.rpartition("/")[0] for name in found}
