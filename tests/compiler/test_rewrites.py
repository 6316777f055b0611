"""Bias corrections of optimizers keep the digits that eager PyTorch has, which computes them in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import systolic

STEPS = torch.tensor([1.0, 2.0, 5.0, 6.0, 7.0, 30.0, 500.0, 1000.0, 20000.0])


def targets(compiled: systolic.compiler.JitFunction[..., Any]) -> list[Any]:
    return [node.target for node in compiled.graph().nodes]


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999, 0.9999])
@pytest.mark.parametrize(
    "formula",
    [
        lambda beta, step: 1 - beta**step,
        lambda beta, step: beta**step - 1,
        lambda beta, step: -(beta**step) + 1,
        lambda beta, step: torch.rsub(beta**step, 1),
        lambda beta, step: torch.add(beta**step, -1),
    ],
)
def test_one_minus_power(beta: float, formula: Callable[[float, torch.Tensor], torch.Tensor]) -> None:
    compiled = systolic.jit(lambda step: formula(beta, step))
    torch.testing.assert_close(compiled(STEPS).cpu(), formula(beta, STEPS.double()).float(), rtol=5e-7, atol=0)
    assert torch.ops.systolic.one_minus_pow.default in targets(compiled)


@pytest.mark.parametrize("base", [1.5, 1.0, 0.0])
def test_other_bases_stay(base: float) -> None:
    compiled = systolic.jit(lambda step: 1 - base**step)
    torch.testing.assert_close(compiled(STEPS[:5]).cpu(), 1 - base ** STEPS[:5], rtol=1e-6, atol=0)
    assert torch.ops.systolic.one_minus_pow.default not in targets(compiled)


@pytest.mark.parametrize("beta", [0.9, 0.99, 0.999, 0.9999])
def test_rectified_length(beta: float) -> None:
    def length(step: torch.Tensor) -> torch.Tensor:
        return (2 / (1 - beta) - 1) - 2 * step * (beta**step) / (1 - beta**step)

    compiled = systolic.jit(length)
    torch.testing.assert_close(compiled(STEPS).cpu(), length(STEPS.double()).float(), rtol=1e-6, atol=0)
    assert torch.ops.systolic.rectified_length.default in targets(compiled)


@pytest.mark.parametrize(
    "kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adamax]
)
def test_optimizers_are_recognised(kind: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = kind(model.parameters())

    @systolic.jit
    def step(x: torch.Tensor) -> None:
        model(x).sum().backward()
        optimizer.step()

    step(torch.ones(3, 2))
    assert torch.ops.systolic.one_minus_pow.default in targets(step)


def make_adam(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.0, **options)


def make_adamw(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.0, **options)


@pytest.mark.parametrize("options", [{}, {"amsgrad": True}], ids=["plain", "amsgrad"])
@pytest.mark.parametrize("make", [make_adam, make_adamw])
def test_a_warm_up_from_zero_leaves_what_has_no_gradient(make: Callable[..., torch.optim.Optimizer], options: Any) -> None:
    """PyTorch's form for traces divides by the learning rate: rows of an embedding that no batch had became NaN."""
    weights = []
    for compiled in (False, True):
        torch.manual_seed(0)
        embedding = nn.Embedding(4, 2)
        optimizer = make(embedding.parameters(), **options)

        def step(words: torch.Tensor, embedding: nn.Embedding = embedding, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            embedding(words).square().sum().backward()
            optimizer.step()

        run = systolic.jit(step) if compiled else step
        for lr in (0.0, 0.1, 0.2):
            optimizer.param_groups[0]["lr"] = lr
            run(torch.tensor([0, 1]))
        weights.append(embedding.weight.detach().clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-5, atol=1e-6)
