"""Sizes given as tensors equal eager PyTorch, which takes their numbers by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import systolic
from systolic.compiler import DataDependentError

T = torch.Tensor
BATCHES = [torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 1, 2, 3, 3, 3])]

SIZES: dict[str, Callable[[T, T], T]] = {
    "zeros": lambda x, i: torch.zeros(i.max().int() + 1, 2).index_add_(0, i, x),
    "zeros, a list": lambda x, i: torch.zeros([i.max(), 2]),
    "zeros, by name": lambda x, i: torch.zeros(size=(i.max(), 2)),
    "a sum over it": lambda x, i: torch.ones(i.max() + 1, 2).index_add(0, i, x).sum(),
    "full": lambda x, i: torch.full((i.max(), 2), 3.0),
    "full with a value": lambda x, i: torch.full((2, 2), i.max()),
    "new_zeros": lambda x, i: x.new_zeros(i.max() + 1, 2).index_add_(0, i, x),
    "expand": lambda x, i: x[:1].expand(i.max(), 2),
    "repeat": lambda x, i: x.repeat(i.max(), 1),
    "view": lambda x, i: x.view(i[-1] * 0 + 3, -1),
    "reshape, a tuple": lambda x, i: torch.reshape(x, (i[-1] * 0 + 3, 4)),
    "arange": lambda x, i: torch.arange(1, i.max() + 1),
    "arange, by name": lambda x, i: torch.arange(end=i.max(), dtype=torch.float32),
    "a mask of lengths": lambda x, i: (torch.arange(i.max())[None] < i[:, None]).float(),
    "eye": lambda x, i: torch.eye(i.max()),
    "topk": lambda x, i: x[:, 0].topk(i.max())[0],
    "tril": lambda x, i: torch.tril(x @ x.T, i.max()),
    "how many are drawn": lambda x, i: torch.zeros(len(torch.rand(i.max(), 2))),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", SIZES)
def test_sizes_given_as_tensors(name: str) -> None:
    x = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
    compiled: Any = systolic.jit(SIZES[name])
    for index in BATCHES:
        torch.testing.assert_close(compiled(x, index).cpu(), SIZES[name](x, index))
    torch.testing.assert_close(compiled(x, BATCHES[0]).cpu(), SIZES[name](x, BATCHES[0]))
    assert compiled.compile_count <= len(BATCHES)


def test_one_program_for_sizes_that_stay() -> None:
    compiled: Any = systolic.jit(SIZES["zeros"])
    for seed in range(3):
        compiled(torch.randn(6, 2, generator=torch.Generator().manual_seed(seed)), BATCHES[0])
    assert compiled.compile_count == 1


def test_a_gradient_goes_through() -> None:
    layer = torch.nn.Linear(2, 2)

    def step(x: T, index: T) -> T:
        loss = torch.zeros(index.max() + 1, 2).index_add(0, index, layer(x)).square().mean()
        layer.weight.grad = None
        loss.backward()
        return layer.weight.grad.clone()

    compiled: Any = systolic.jit(step)
    for index in BATCHES:
        torch.testing.assert_close(compiled(torch.ones(6, 2), index).cpu(), step(torch.ones(6, 2), index), rtol=1e-5, atol=1e-6)


RANGES: dict[str, Callable[[T], T]] = {
    "to a number": lambda x: torch.arange(0, x.sum().item()),
    "to a tensor": lambda x: torch.arange(x.sum()),
    "by a step": lambda x: torch.arange(0.5, x.sum(), 0.25),
    "by a step that is a value": lambda x: torch.arange(1, 2, step=x.sum().item() / 40),
    "downwards": lambda x: torch.arange(x.sum().item(), 0, -0.3),
    "in float64": lambda x: torch.arange(end=x.sum().item(), start=1.0, dtype=torch.float64),
    "a grid with a gradient": lambda x: torch.arange(0.0, x.detach().sum().item()) * x[0],
}


@pytest.mark.parametrize("name", RANGES)
def test_ranges_of_real_numbers(name: str) -> None:
    compiled: Any = systolic.jit(RANGES[name])
    for last in (3.5, 2.25, 0.0):
        x = torch.tensor([1.0, 2.0, last])
        torch.testing.assert_close(compiled(x).cpu(), RANGES[name](x))


def test_a_range_of_whole_numbers_to_a_real_one_is_refused_with_the_line() -> None:
    with pytest.raises(DataDependentError, match="test_size_arguments.py"):
        systolic.jit(lambda x: torch.arange(0, x.max().item(), dtype=torch.int64))(torch.tensor([1.0, 3.0]))
