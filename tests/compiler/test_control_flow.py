"""PyTorch's control flow functions inside a compiled step, against eager PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiler.step_check import check_step
from torch import nn
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

import systolic


def test_a_branch_that_a_value_chooses() -> None:
    def step(x: torch.Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda one: one.sin(), lambda one: one.cos(), (x,))

    compiled = systolic.jit(step)
    for sign in (1.0, -1.0, 1.0):
        x = sign * torch.rand(4, 3)
        torch.testing.assert_close(compiled(x).cpu(), step(x))


def test_gradients_go_through_the_branch() -> None:
    module = nn.Linear(3, 3)
    check_step(
        lambda x: torch.cond(x.sum() > 0, lambda one: module(one).sin(), lambda one: module(one).cos(), (x,)),
        torch.rand(4, 3, requires_grad=True), module=module,
    )  # fmt: skip


def test_a_loop_that_a_value_ends() -> None:
    def step(x: torch.Tensor) -> Any:
        return while_loop(lambda i, one: one.sum() < 30, lambda i, one: (i + 1, one + 1), (torch.tensor(0), x))

    compiled = systolic.jit(step)
    for start in (0.0, 1.0, 5.0):
        x = torch.full((3, 2), start)
        for got, want in zip(compiled(x), step(x), strict=True):
            torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_scan_with_a_carry(dim: int, reverse: bool) -> None:
    def combine(carry: torch.Tensor, one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carry * 0.5 + one, (carry * one).clone()

    def loop(start: torch.Tensor, x: torch.Tensor) -> Any:
        results = []
        for one in x.unbind(dim)[:: -1 if reverse else 1]:
            start, result = combine(start, one)
            results.append(result)
        return start, torch.stack(results[:: -1 if reverse else 1], dim)

    start, x = torch.randn(3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    # eager PyTorch's own has no gradients where Dynamo does not know the objects around it
    check_step(lambda start, x: scan(combine, start, x, dim=dim, reverse=reverse), start, x, oracle=loop)
    for got, want in zip(scan(combine, start.detach(), x.detach(), dim=dim, reverse=reverse), loop(start, x), strict=True):
        torch.testing.assert_close(got, want.detach())


def test_a_scan_over_two_tensors() -> None:
    def combine(carry: tuple[torch.Tensor, torch.Tensor], pair: dict[str, torch.Tensor]) -> Any:
        total, count = carry
        return (total + pair["x"].sum(), count + 1), {"mean": (total / (count + 1)).clone()}

    def loop(x: torch.Tensor, y: torch.Tensor) -> Any:
        carry, means = (torch.zeros(()), torch.zeros(())), []
        for one, other in zip(x, y, strict=True):
            carry, result = combine(carry, {"x": one, "y": other})
            means.append(result["mean"])
        return carry, {"mean": torch.stack(means)}

    inputs = torch.randn(4, 3, requires_grad=True), torch.randn(4, 2)
    check_step(lambda x, y: scan(combine, (torch.zeros(()), torch.zeros(())), {"x": x, "y": y}), *inputs, oracle=loop)


def test_a_function_of_each_row() -> None:
    check_step(
        lambda x, y: map_rows(lambda row, other: (row.sin() @ other).reshape(1), x, y),
        torch.randn(4, 3, requires_grad=True), torch.randn(3),
    )  # fmt: skip
