"""Batch norms with `momentum=None`: one program, and eager PyTorch's statistics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import systolic
from systolic.runtime import jax_devices


def trained(norm: nn.Module, shape: tuple[int, ...], cores: int) -> tuple[dict[str, torch.Tensor], int]:
    """The norm's state after five steps and an evaluation, and how many programs they took."""
    optimizer = torch.optim.SGD(norm.parameters(), 0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (norm(x) * x).mean()
        if norm.training:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    compiled = systolic.jit(step, devices=jax_devices()[:cores]) if cores else step
    generator = torch.Generator().manual_seed(1)
    results = [compiled(torch.randn(shape, generator=generator)) for _ in range(5)]
    norm.eval()
    results.append(compiled(torch.randn(shape, generator=generator)))
    state = {"results": torch.stack([result.cpu() for result in results]), **norm.state_dict()}
    return state, compiled.compile_count if isinstance(compiled, systolic.compiler.JitFunction) else 0


@pytest.mark.parametrize(("norm", "shape"), [(nn.BatchNorm1d, (8, 3)), (nn.BatchNorm2d, (4, 3, 2, 2))])
def test_statistics_over_all_batches(norm: type[nn.Module], shape: tuple[int, ...]) -> None:
    theirs, _ = trained(norm(3, momentum=None), shape, 0)
    ours, programs = trained(norm(3, momentum=None), shape, 1)
    assert programs == 2  # training, evaluation
    torch.testing.assert_close(ours, theirs)
