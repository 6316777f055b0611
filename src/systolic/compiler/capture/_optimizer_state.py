"""Give optimizers the state that their first step would create.

PyTorch's optimizers create state lazily, so that the first step would be another program than the later ones. For the
classes below, starting from the values below is the same computation: their first step begins with exactly these.
SGD with dampening and optimizers of the user's own take the general way: a program for the first step.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import optim

_LARGE = 2**20
"""Bytes from which on memory is asked of the system."""

Rule = Callable[[dict[str, Any], torch.Tensor], dict[str, torch.Tensor]]


def _zeros(parameter: torch.Tensor) -> torch.Tensor:
    if parameter.is_meta:
        # preflight takes models that are larger than this machine's memory: what belongs to them needs none, too
        return torch.zeros_like(parameter)
    size = parameter.numel() * parameter.element_size()
    if size < _LARGE or sys.platform != "linux":
        return torch.zeros(parameter.shape, dtype=parameter.dtype)
    # pages that the system hands out are zero, and are made when they are first touched: by the first step, or never
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=parameter.dtype).view(parameter.shape)


def _step_count(parameter: torch.Tensor) -> torch.Tensor:
    """0 in float32, as in PyTorch; in float64 for float64 parameters, whose bias correction needs the digits."""
    return torch.zeros((), dtype=torch.float64 if parameter.dtype == torch.float64 else torch.float32)


def _moments(*names: str) -> Rule:
    def rule(group: dict[str, Any], parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        state = {"step": _step_count(parameter), **{name: _zeros(parameter) for name in names}}
        if group.get("amsgrad"):
            state["max_exp_avg_sq"] = _zeros(parameter)
        return state

    return rule


def _sgd(group: dict[str, Any], parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    # with dampening, later steps scale the gradient and the first one does not
    buffered = group["momentum"] != 0 and group["dampening"] == 0
    return {"momentum_buffer": _zeros(parameter)} if buffered else {}


def _nadam(group: dict[str, Any], parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    state = {"step": _step_count(parameter), "mu_product": torch.ones_like(_step_count(parameter))}
    return {**state, "exp_avg": _zeros(parameter), "exp_avg_sq": _zeros(parameter)}


def _rmsprop(group: dict[str, Any], parameter: torch.Tensor) -> dict[str, torch.Tensor]:
    state = {"step": _step_count(parameter), "square_avg": _zeros(parameter)}
    if group["momentum"] > 0:
        state["momentum_buffer"] = _zeros(parameter)
    if group["centered"]:
        state["grad_avg"] = _zeros(parameter)
    return state


_RULES: dict[type[optim.Optimizer], Rule] = {
    optim.SGD: _sgd,
    optim.Adam: _moments("exp_avg", "exp_avg_sq"),
    optim.AdamW: _moments("exp_avg", "exp_avg_sq"),
    optim.RAdam: _moments("exp_avg", "exp_avg_sq"),
    optim.Adamax: _moments("exp_avg", "exp_inf"),
    optim.Adadelta: _moments("square_avg", "acc_delta"),
    optim.NAdam: _nadam,
    optim.RMSprop: _rmsprop,
}


def fill_first_state(optimizer: optim.Optimizer) -> list[torch.Tensor]:
    """Create the state of parameters that have none, where the class is known.

    Returns:
        The parameters whose state was created; `forget_state` takes it back for those that get no gradient.
    """
    rule = _RULES.get(type(optimizer))
    filled: list[torch.Tensor] = []
    if rule is None:
        return filled
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and not optimizer.state.get(parameter):
                state = rule(group, parameter)
                if state:
                    optimizer.state[parameter] = state
                    filled.append(parameter)
    return filled


def forget_state(optimizer: optim.Optimizer, parameters: list[torch.Tensor]) -> None:
    """Remove the state of parameters that the step turned out not to update."""
    for parameter in parameters:
        optimizer.state.pop(parameter, None)
