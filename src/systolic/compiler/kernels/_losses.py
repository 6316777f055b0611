"""Losses that look at values in Python only to check them, or go on in ways that a program has of its own."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

# since PyTorch 2.13
_linear_cross_entropy: Any = getattr(functional, "linear_cross_entropy", None)
has_linear_cross_entropy = _linear_cross_entropy is not None


def linear_cross_entropy(*args: Any, options: Any = None, **kwargs: Any) -> torch.Tensor:
    """PyTorch's function of this name; its `options` divide the work, which the compiler does."""
    return _linear_cross_entropy(*args, **kwargs)


def gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """PyTorch's function of this name, without its check that no variance is negative."""
    if isinstance(var, int | float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = torch.full_like(input, var)
    if var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    elif var.shape != input.shape and not _spreads_along_one_dimension(var, input):
        raise ValueError("var is of incorrect size")
    var = var.clone()
    with torch.no_grad():  # the lower bound takes no part in the gradient
        var.clamp_(min=eps)
    loss = 0.5 * (var.log() + (input - target).square() / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _spreads_along_one_dimension(var: torch.Tensor, x: torch.Tensor) -> bool:
    return var.dim() == x.dim() and [y for n, y in zip(x.shape, var.shape, strict=True) if n != y] == [1]
