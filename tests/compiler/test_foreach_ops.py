"""Ops for lists of tensors inside compiled functions: equal to eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import systolic


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.rand(shape, generator=generator) + 0.5).to(dtype) for shape in ((3, 2), (4,), ())]


F: Any = torch
CALLS: dict[str, Callable[[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]], Any]] = {
    "add scalar": lambda a, b, c: F._foreach_add(a, 2.0),
    "add scalars": lambda a, b, c: F._foreach_add(a, [1.0, 2.0, 3.0]),
    "add lists": lambda a, b, c: F._foreach_add(a, b, alpha=0.5),
    "sub": lambda a, b, c: F._foreach_sub(a, b),
    "mul tensor": lambda a, b, c: F._foreach_mul(a, b[2]),
    "div": lambda a, b, c: F._foreach_div(a, b),
    "lerp scalar": lambda a, b, c: F._foreach_lerp(a, b, 0.25),
    "lerp lists": lambda a, b, c: F._foreach_lerp(a, b, c),
    "addcdiv": lambda a, b, c: F._foreach_addcdiv(a, b, c, value=0.5),
    "addcdiv scalars": lambda a, b, c: F._foreach_addcdiv(a, b, c, [0.5, 1.0, 2.0]),
    "addcdiv tensor": lambda a, b, c: F._foreach_addcdiv(a, b, c, torch.tensor([0.5, 1.0, 2.0])),
    "addcmul": lambda a, b, c: F._foreach_addcmul(a, b, c),
    "sqrt": lambda a, b, c: F._foreach_sqrt(a),
    "maximum": lambda a, b, c: F._foreach_maximum(a, b),
    "pow": lambda a, b, c: F._foreach_pow(a, 2),
    "norm": lambda a, b, c: F._foreach_norm(a),
    "norm 1": lambda a, b, c: F._foreach_norm(a, 1),
    "in place": lambda a, b, c: (F._foreach_mul_(a, 0.5), F._foreach_add_(a, b, alpha=0.5), F._foreach_copy_(b, a), a, b)[3:],
    "zero": lambda a, b, c: (F._foreach_zero_(a), a)[1],
}


@pytest.mark.parametrize("name", list(CALLS))
def test_ops_for_lists(name: str) -> None:
    def call(a: list[torch.Tensor], b: list[torch.Tensor], c: list[torch.Tensor]) -> Any:
        return CALLS[name]([x.clone() for x in a], [x.clone() for x in b], c)

    lists = [tensors(seed) for seed in range(3)]
    torch.testing.assert_close(systolic.jit(call)(*lists), call(*lists))
