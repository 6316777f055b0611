"""`associative_scan` inside a compiled step, against a loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from compiler.step_check import check_step
from torch._higher_order_ops.associative_scan import associative_scan

Pair = tuple[torch.Tensor, torch.Tensor]


def decaying(left: Pair, right: Pair) -> Pair:
    return left[0] * right[0], right[0] * left[1] + right[1]


def multiplied(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return right @ left


def loop(combine: Any, xs: Any, dim: int, reverse: bool) -> Any:
    pairs = isinstance(xs, tuple)
    steps = list(zip(*(x.unbind(dim) for x in xs), strict=True)) if pairs else list(xs.unbind(dim))
    steps = steps[::-1] if reverse else steps
    found = [steps[0]]
    for step in steps[1:]:
        found.append(combine(found[-1], step))
    found = found[::-1] if reverse else found
    return tuple(torch.stack(one, dim) for one in zip(*found, strict=True)) if pairs else torch.stack(found, dim)


@pytest.mark.thin(2)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_states_that_decay(length: int, reverse: bool) -> None:
    xs = torch.rand(2, length, 3, requires_grad=True), torch.randn(2, length, 3, requires_grad=True)
    check_step(
        lambda a, b: associative_scan(decaying, (a, b), dim=1, reverse=reverse, combine_mode="generic"),
        *xs, oracle=lambda a, b: loop(decaying, (a, b), 1, reverse),
    )  # fmt: skip


def test_combinations_that_are_not_of_elements() -> None:
    check_step(
        lambda x: associative_scan(multiplied, x, dim=0, combine_mode="generic"),
        torch.randn(4, 3, 3, requires_grad=True), oracle=lambda x: loop(multiplied, x, 0, False),
    )  # fmt: skip
