"""Scalars that an optimizer computes for each parameter: one vector in the program, the numbers those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest
import torch
from program_text import optimized_programs

import systolic

OPTIMIZERS: dict[str, Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.01, amsgrad=True),
    "radam": lambda parameters: torch.optim.RAdam(parameters, 0.01),
    "nadam": lambda parameters: torch.optim.NAdam(parameters, 0.01),
    "adamax": lambda parameters: torch.optim.Adamax(parameters, 0.01),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, 0.01, lr_decay=0.1),
    "adadelta": lambda parameters: torch.optim.Adadelta(parameters, 0.5),
    "asgd": lambda parameters: torch.optim.ASGD(parameters, 0.01),
    "two groups": lambda parameters: torch.optim.AdamW(
        [{"params": parameters[::2]}, {"params": parameters[1::2], "betas": (0.5, 0.9), "lr": 0.02}], 0.01
    ),
    "a tensor for the rate": lambda parameters: torch.optim.AdamW(parameters, torch.tensor(0.01)),
}


def step_of(
    make: Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer], depth: int = 3
) -> tuple[torch.nn.Sequential, torch.optim.Optimizer, Callable[[torch.Tensor, int], torch.Tensor]]:
    """A model, its optimizer, and a step through some of its layers: the parameters of the others are not counted."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(depth)])
    optimizer = make(list(model.parameters()))

    def step(x: torch.Tensor, layers: int) -> torch.Tensor:
        loss = model[:layers](x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


@pytest.mark.thin(3)
@pytest.mark.parametrize("cores", [1, 8])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_parameter_keeps_a_count_of_its_own(name: str, cores: int) -> None:
    expected_model, expected_optimizer, eager = step_of(OPTIMIZERS[name])
    model, optimizer, step = step_of(OPTIMIZERS[name])
    compiled = systolic.jit(step, devices=jax.devices("cpu")[:cores])
    for layers in [3, 2, 2, 3, 3, 3, 3]:
        x = torch.randn(16, 8)
        torch.testing.assert_close(compiled(x, layers), eager(x, layers), rtol=1e-5, atol=1e-6)
    compiled.release()
    for got, want in zip(model.parameters(), expected_model.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        ours, theirs = optimizer.state[got], expected_optimizer.state[want]
        assert ours.keys() == theirs.keys()
        if "step" in theirs:
            assert ours["step"] == theirs["step"]


@pytest.mark.thin(2)
@pytest.mark.parametrize("layers", [6, 24])
def test_kernels_for_counts_do_not_grow_with_the_model(layers: int) -> None:
    _, _, step = step_of(lambda parameters: torch.optim.AdamW(parameters, 0.01), layers)
    compiled = systolic.jit(step)
    with optimized_programs() as texts:
        compiled(torch.randn(16, 8), layers)
        compiled(torch.randn(16, 8), layers)
    expm1 = [line for line in texts[-1].splitlines() if "exponential-minus-one(" in line]
    assert 2 <= len(expm1) <= 4, expm1
    # XLA makes one slice of the neighbouring counts in the buffer of small state
    assert not [line for line in expm1 if "= f32[] " in line or "= f32[1]{0} " in line]
