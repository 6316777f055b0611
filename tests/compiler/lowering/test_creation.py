from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from compiler.lowering.op_check import check_op

T = torch.Tensor

CREATED: dict[str, Callable[[T], object]] = {
    "zeros": lambda x: torch.zeros(2, 3) + x,
    "ones": lambda x: torch.ones(2, 3, dtype=torch.int32),
    "full": lambda x: torch.full((2, 3), 0.3),
    "full_int": lambda x: torch.full((2,), 3),
    "full_bool": lambda x: torch.full((2,), True),
    "full_bfloat16": lambda x: torch.full((2,), 0.3, dtype=torch.bfloat16),
    "zeros_like": torch.zeros_like,
    "ones_like": lambda x: torch.ones_like(x, dtype=torch.int64),
    "full_like": lambda x: torch.full_like(x, 7),
    "empty": lambda x: torch.empty(2, 3).fill_(1.5),
    "empty_like": lambda x: torch.empty_like(x).copy_(x),
    "empty_strided": lambda x: torch.empty_strided((2, 3), (1, 2)).zero_(),
    "new_zeros": lambda x: x.new_zeros(3),
    "new_ones": lambda x: x.new_ones(3, dtype=torch.bool),
    "new_full": lambda x: x.new_full((3,), 2.5),
    "new_empty": lambda x: x.new_empty(3).zero_(),
    "new_tensor": lambda x: torch.scalar_tensor(3.5) + torch.scalar_tensor(2, dtype=torch.int64),
    "fill": lambda x: torch.fill(x, 3),
    "fill_tensor": lambda x: torch.fill(x, x.sum()),
    "copy_broadcast": lambda x: x.clone().copy_(x[0]),
    "copy_cast": lambda x: torch.zeros(2, 3, dtype=torch.int64).copy_(x * 5),
    "arange": lambda x: torch.arange(7),
    "arange_float": lambda x: torch.arange(0.5, 3.0, 0.1),
    "arange_int_step": lambda x: torch.arange(2, 20, 3),
    "arange_down": lambda x: torch.arange(5, -5, -2),
    "arange_dtype": lambda x: torch.arange(5, dtype=torch.float32),
    "arange_bfloat16": lambda x: torch.arange(0, 2, 0.25, dtype=torch.bfloat16),
    "arange_mixed": lambda x: torch.arange(1, 3, 0.5),
    "arange_empty": lambda x: torch.arange(0),
    "linspace": lambda x: torch.linspace(-1.0, 2.0, 7),
    "linspace_one": lambda x: torch.linspace(3.0, 5.0, 1),
    "linspace_none": lambda x: torch.linspace(3.0, 5.0, 0),
    "linspace_int": lambda x: torch.linspace(0, 10, 5, dtype=torch.int64),
    "linspace_tensors": lambda x: torch.linspace(x[0, 0], x[0, 1], 5),
    "logspace": lambda x: torch.logspace(-1, 2, 5),
    "logspace_base": lambda x: torch.logspace(0, 3, 4, base=2.0),
    "logspace_tensor": lambda x: torch.logspace(x[0, 0], 2, 5),
    "eye": lambda x: torch.eye(3),
    "eye_m": lambda x: torch.eye(2, 4, dtype=torch.int64),
    "tril_indices": lambda x: torch.tril_indices(3, 4, 1),
    "triu_indices": lambda x: torch.triu_indices(4, 3, -1, dtype=torch.int32),
    "lift_fresh": lambda x: torch.ops.aten.lift_fresh_copy(x),
    "hann_window": lambda x: torch.hann_window(8),
    "hamming_window": lambda x: torch.hamming_window(8, periodic=False),
    "blackman_window": lambda x: torch.blackman_window(7),
    "bartlett_window": lambda x: torch.bartlett_window(9),
    "kaiser_window": lambda x: torch.kaiser_window(9),
}


@pytest.mark.parametrize("function", CREATED.values(), ids=CREATED)
def test_creation(function: Callable[[T], object]) -> None:
    check_op(function, torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -0.125]]))


def test_large_float_range() -> None:
    check_op(lambda x: torch.arange(0.0, 1000.0, 0.1) + x, torch.zeros(()), rtol=2e-7, atol=0)
    check_op(lambda x: torch.arange(100_000, dtype=torch.float32) + x, torch.zeros(()), rtol=0, atol=0)
