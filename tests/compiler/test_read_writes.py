"""Large state that a step writes and reads: moments, which are chosen and kept as soon as they are there."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest
import torch
import torch.nn.functional as F
from program_text import optimized_programs

import systolic

WIDTH = 256
Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def world(kind: str) -> tuple[torch.nn.Module, torch.optim.Optimizer, Step]:
    """A model, its optimizer, and a step whose labels are checked; of "late", a table is read after the optimizer has run."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(8, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 5)
    )
    # with this eps a gradient of nothing but rounding errors moves nothing
    adamw = torch.optim.AdamW(model.parameters(), 0.01, eps=1e-4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) if kind == "sgd" else adamw
    table = torch.ones(5)

    def step(x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if kind == "conditions":
            assert (x < 50).all(), "too large"
        loss = F.cross_entropy(model(x), labels) if kind != "late" else model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach() * table[labels].mean() if kind == "late" else loss.detach()

    return model, optimizer, step


def batch(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sixteen rows with their labels."""
    generator = torch.Generator().manual_seed(number)
    return torch.randn(16, 8, generator=generator), torch.randint(0, 5, (16,), generator=generator)


def state(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Parameters and what the optimizer keeps for them."""
    kept = [value for one in optimizer.state.values() for value in one.values() if isinstance(value, torch.Tensor)]
    return [x.detach().clone() for x in [*model.parameters(), *kept]]


@pytest.mark.parametrize("cores", [1, 8])
@pytest.mark.parametrize("kind", ["adamw", "sgd", "late", "conditions"])
def test_steps_equal_eager_and_a_failed_check_leaves_parameters_and_moments(kind: str, cores: int) -> None:
    expected_model, expected_optimizer, eager = world(kind)
    model, optimizer, step = world(kind)
    compiled = systolic.jit(step, devices=jax.devices("cpu")[:cores])
    for number in range(4):
        torch.testing.assert_close(compiled(*batch(number)), eager(*batch(number)), rtol=1e-5, atol=1e-6)
        if number == 1:
            x, labels = batch(9)
            with pytest.raises(systolic.OutOfRangeError, match="Received: 5"):
                compiled(x, labels.index_fill(0, torch.tensor([15]), 5))
            if kind == "conditions":
                with pytest.raises(AssertionError, match="too large"):
                    compiled(x + 100, labels)
    compiled.release()
    for got, want in zip(state(model, optimizer), state(expected_model, expected_optimizer), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
def test_no_moment_is_copied(kind: str) -> None:
    _, _, step = world(kind)
    compiled = systolic.jit(step)
    with optimized_programs() as texts:
        compiled(*batch(0))
        compiled(*batch(1))
    assert f"f32[{WIDTH},{WIDTH}]" in texts[-1]
    copies = [line for line in texts[-1].splitlines() if f"= f32[{WIDTH},{WIDTH}]" in line and " copy(" in line]
    assert len(copies) <= 1  # of the weight, which the gradient of the layer's input reads
