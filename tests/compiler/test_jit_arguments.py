"""Gradients of a compiled function's arguments, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import systolic

T = torch.Tensor


def backward(x: T, y: T) -> T:
    loss = (x * y).square().sum()
    loss.backward()
    return loss.detach()


def twice(x: T, y: T) -> T:
    (x * y).sum().backward()
    loss = x.square().sum()
    loss.backward()
    return loss.detach()


def ascent(x: T, y: T) -> T:
    """As adversarial examples are made."""
    (x * y).sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        return x + 0.1 * x.grad.sign()


FUNCTIONS: dict[str, Callable[[T, T], T]] = {
    "backward": backward,
    "twice": twice,
    "ascent": ascent,
    "grad": lambda x, y: torch.autograd.grad((x**3 * y).sum(), x)[0],
    "grad of grad": lambda x, y: torch.autograd.grad(torch.autograd.grad((x**3 * y).sum(), x, create_graph=True)[0].sum(), x)[
        0
    ],
    "no gradient": lambda x, y: (x * y).sum().detach(),
    "only asked": lambda x, y: x.detach() * (1.0 if x.requires_grad and not y.requires_grad else 2.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_arguments(name: str) -> None:
    step = systolic.jit(FUNCTIONS[name])
    mine, theirs = (torch.randn(4, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    for number in range(3):  # `.grad` is there from the second call on
        y = torch.full((4,), float(number + 1))
        torch.testing.assert_close(step(mine, y), FUNCTIONS[name](theirs, y))
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert step.compile_count == (1 if mine.grad is None else 2)


def test_arguments_with_and_without_gradients_have_programs_of_their_own() -> None:
    step = systolic.jit(FUNCTIONS["only asked"])
    plain, wanted = torch.ones(2), torch.ones(2, requires_grad=True)
    assert [step(x, torch.ones(2)).tolist() for x in (plain, wanted, plain)] == [[2, 2], [1, 1], [2, 2]]


def test_a_gradient_is_one_for_an_optimizer() -> None:
    x = torch.ones(3, requires_grad=True)
    systolic.jit(backward)(x, torch.tensor([1.0, 2.0, 3.0]))
    torch.optim.SGD([x], lr=0.1).step()
    torch.testing.assert_close(x.detach(), torch.tensor([0.8, 0.2, -0.8]))


def test_a_gradient_that_would_go_on_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="has computed of other tensors"):
        systolic.jit(backward)(x * 2, torch.ones(3))
    assert systolic.jit(FUNCTIONS["no gradient"])(x * 2, torch.ones(3)) == 6


def test_a_tensor_that_is_used_from_elsewhere_too_is_refused() -> None:
    layer = nn.Linear(3, 1)

    def step(weight: T, x: T) -> T:
        loss = layer(x).square().mean() + weight.square().sum()
        loss.backward()
        return loss.detach()

    with pytest.raises(ValueError, match="uses it from elsewhere"):
        systolic.jit(step)(layer.weight, torch.ones(2, 3))
