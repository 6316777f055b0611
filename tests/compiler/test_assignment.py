"""Hungarian matching inside a compiled step, against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment

import systolic
from systolic.exceptions import OutOfRangeError

SHAPES = [(1, 1), (3, 3), (2, 5), (6, 2), (7, 7), (0, 3), (4, 0)]


@systolic.jit
def match(cost: torch.Tensor) -> list[torch.Tensor]:
    rows, columns = linear_sum_assignment(cost.cpu())
    return [torch.as_tensor(rows, dtype=torch.int64), torch.as_tensor(columns, dtype=torch.int64)]


@pytest.mark.parametrize("shape", SHAPES)
def test_matchings_are_scipys_ties_included(shape: tuple[int, int]) -> None:
    for seed in range(6):
        generator = torch.Generator().manual_seed(seed)
        # few different numbers: many ties
        cost = torch.randint(0, 3 + 40 * (seed % 2), shape, generator=generator).float() - 1
        wanted = linear_sum_assignment(cost)
        for want, got in zip(wanted, match(cost), strict=True):
            assert np.array_equal(want, got.numpy()), (cost, wanted)


def test_infinite_costs_are_avoided() -> None:
    cost = torch.tensor([[float("inf"), 1.0, 2.0], [1.0, 1.0, float("inf")]])
    assert [x.tolist() for x in match(cost)] == [x.tolist() for x in linear_sum_assignment(cost)]


def test_what_scipy_refuses_ends_the_run() -> None:
    for cost in (torch.full((2, 2), float("inf")), torch.tensor([[1.0, float("nan")], [1.0, 2.0]])):
        with pytest.raises(ValueError):
            linear_sum_assignment(cost)
        with pytest.raises(OutOfRangeError, match="feasible matching"):
            match(cost)


def test_the_largest_sum() -> None:
    cost = torch.randn(5, 4)
    compiled = systolic.jit(lambda x: list(linear_sum_assignment(x, maximize=True)))
    assert [x.tolist() for x in compiled(cost)] == [x.tolist() for x in linear_sum_assignment(cost, maximize=True)]


def test_a_loss_over_matched_pairs_trains_as_in_eager_pytorch() -> None:
    def step(predicted: torch.Tensor, wanted: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = predicted.detach().requires_grad_()
        costs = torch.cdist(leaf.flatten(0, 1), wanted.flatten(0, 1), p=1).view(2, 6, -1).cpu()
        pairs = [linear_sum_assignment(c[i].detach()) for i, c in enumerate(costs.split([3, 3], -1))]
        loss = torch.zeros(())
        for i, (rows, columns) in enumerate(pairs):
            loss = loss + (leaf[i][torch.as_tensor(rows)] - wanted[i][torch.as_tensor(columns)]).abs().sum()
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    compiled = systolic.jit(step)
    for _ in range(3):
        batch = torch.randn(2, 6, 4), torch.randn(2, 3, 4)
        for want, got in zip(step(*batch), compiled(*batch), strict=True):
            torch.testing.assert_close(got.cpu(), want)
    assert len(compiled.compiles) == 1
