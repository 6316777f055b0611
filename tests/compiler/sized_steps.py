"""Steps whose sizes values decide: compiled beside eager PyTorch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import pytest
import torch
from torch import nn

import systolic


def require_equal_to_eager(
    body: Callable[..., torch.Tensor],
    model: nn.Module,
    given: Sequence[tuple[torch.Tensor, ...]],
    devices: int = 1,
    momentum: float = 0.0,
) -> systolic.JitFunction:
    """Losses, and weights at the end, are those of eager PyTorch.

    Args:
        body: from the model and a batch to a loss.
        model: in float64; it is trained.
        given: the batches.
        devices: how many cores.
        momentum: of the SGD that trains.
    """
    eager = copy.deepcopy(model)

    def steps(trained: nn.Module) -> Callable[..., torch.Tensor]:
        optimizer = torch.optim.SGD(trained.parameters(), 0.05, momentum=momentum)

        def step(*batch: Any) -> torch.Tensor:
            loss = body(trained, *batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    compiled, plain = systolic.jit(steps(model), devices=jax.devices()[:devices]), steps(eager)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that programs are taken for the wrong one
        losses = [float(compiled(*batch)) for batch in given]
    assert losses == pytest.approx([float(plain(*batch)) for batch in given], rel=1e-9, nan_ok=True)
    for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.detach(), theirs.detach(), rtol=1e-8, atol=1e-10, equal_nan=True)
    return compiled
