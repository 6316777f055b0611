"""Optimizers by name, each made for a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn, optim

MakeOptimizer = Callable[[nn.Module], optim.Optimizer]


class Lion(optim.Optimizer):
    """A user's optimizer: state made in the first step, groups with their own settings, numbers of its own."""

    def __init__(self, parameters: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.99), decay: float = 0.0):
        super().__init__(parameters, {"lr": lr, "betas": betas, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["average"] = p.grad.clone()
                    state["calls"] = 0
                state["calls"] += 1
                fast, slow = group["betas"]
                # tanh where the paper has the sign, which rounding noise around zero would flip
                direction = torch.tanh(100 * torch.lerp(p.grad, state["average"], fast))
                p.mul_(1 - group["lr"] * group["decay"]).add_(direction, alpha=-group["lr"])
                state["average"].lerp_(p.grad, 1 - slow)
        return loss


def _two_groups(model: nn.Module) -> list[dict[str, Any]]:
    matrices = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    others = [p for p in model.parameters() if p.ndim <= 1 and p.requires_grad]
    return [{"params": matrices, "weight_decay": 0.1}, {"params": others, "lr": 3e-3, "weight_decay": 0.0}]


OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda m: optim.SGD(m.parameters(), 0.05),
    "sgd_momentum": lambda m: optim.SGD(m.parameters(), 0.05, momentum=0.9),
    "sgd_nesterov": lambda m: optim.SGD(m.parameters(), 0.05, momentum=0.8, nesterov=True, weight_decay=0.01),
    "sgd_dampening": lambda m: optim.SGD(m.parameters(), 0.05, momentum=0.9, dampening=0.5),
    "sgd_maximize": lambda m: optim.SGD(m.parameters(), 0.01, maximize=True, weight_decay=0.02),
    "adam": lambda m: optim.Adam(m.parameters(), 1e-3),
    "adam_amsgrad": lambda m: optim.Adam(m.parameters(), 1e-3, amsgrad=True, weight_decay=0.01),
    "adam_betas": lambda m: optim.Adam(m.parameters(), 1e-3, betas=(0.5, 0.9999), eps=1e-6),
    "adamw": lambda m: optim.AdamW(m.parameters(), 1e-3),
    "adamw_groups": lambda m: optim.AdamW(_two_groups(m), 1e-3),
    "adagrad": lambda m: optim.Adagrad(m.parameters(), 0.01, lr_decay=0.1, initial_accumulator_value=0.1),
    "rmsprop": lambda m: optim.RMSprop(m.parameters(), 1e-3),
    "rmsprop_centered": lambda m: optim.RMSprop(m.parameters(), 1e-3, momentum=0.9, centered=True, eps=1e-4),
    "adadelta": lambda m: optim.Adadelta(m.parameters(), 0.5),
    "nadam": lambda m: optim.NAdam(m.parameters(), 1e-3, decoupled_weight_decay=True, weight_decay=0.01),
    "radam": lambda m: optim.RAdam(m.parameters(), 1e-3),
    "adamax": lambda m: optim.Adamax(m.parameters(), 1e-3, weight_decay=0.01),
    "asgd": lambda m: optim.ASGD(m.parameters(), 0.02, t0=4, lambd=1e-2),
    "rprop": lambda m: optim.Rprop(m.parameters(), 1e-3),
    "adafactor": lambda m: optim.Adafactor(m.parameters(), 1e-2),
    "lion": lambda m: Lion(m.parameters(), decay=0.1),
}
