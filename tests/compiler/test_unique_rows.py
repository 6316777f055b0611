"""`torch.unique` of rows, and of runs of equal rows, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import systolic

T = torch.Tensor
CALLS: dict[str, Callable[[T], tuple[T, ...]]] = {
    "rows": lambda x: (torch.unique(x, dim=0),),
    "columns": lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
    "matrices": lambda x: torch.unique(x.unflatten(1, (2, 2)), dim=0, return_inverse=True, return_counts=True),
    "runs of rows": lambda x: torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True),
    "means of equal rows": lambda x: (
        lambda rows, which, counts: (torch.zeros(len(rows), 4).index_add(0, which, x.float()) / counts[:, None],)
    )(*torch.unique(x, dim=0, return_inverse=True, return_counts=True)),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    step = systolic.jit(CALLS[name])
    for largest in (2, 3, 2, 4):
        x = torch.randint(-1, largest, (8, 4), generator=generator)
        for mine, theirs in zip(step(x), CALLS[name](x), strict=True):
            torch.testing.assert_close(mine, theirs)


def test_rows_of_many_columns_are_refused() -> None:
    with pytest.raises(systolic.CaptureError, match="unique_dim"):
        systolic.jit(lambda x: torch.unique(x, dim=0))(torch.ones(3, 100))
