"""`torch.segment_reduce` and its gradient, beside eager PyTorch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import systolic
from systolic.exceptions import OutOfRangeError

T = torch.Tensor
LENGTHS: dict[str, tuple[tuple[int, ...], Any]] = {
    "some": ((7, 2), [2, 1, 4]),
    "an empty one": ((5, 2), [2, 0, 3]),
    "the last ones empty": ((4,), [4, 0, 0]),
    "rows": ((2, 6, 3), [[2, 4], [1, 5]]),
}


def reduced(x: T, reduce: str, segments: dict[str, T], **options: Any) -> tuple[T, T]:
    """The result, and the gradient of its squares."""
    x = x.detach().requires_grad_()
    found = torch.segment_reduce(x, reduce, axis=next(iter(segments.values())).ndim - 1, **segments, **options)
    loss = torch.where(found.isfinite(), found, 0).square().sum()
    return found.detach(), torch.autograd.grad(loss, x)[0]


@pytest.mark.thin(3)
@pytest.mark.parametrize("initial", [None, 1.5])
@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str, name: str, initial: float | None) -> None:
    shape, given = LENGTHS[name]
    lengths = torch.tensor(given)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).round(decimals=1)
    x.flatten()[1] = 0  # of which a product has another gradient
    x.flatten()[-1] = x.flatten()[-1 - math.prod(shape[lengths.ndim :])]  # the largest may be there twice
    offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
    for segments in ({"lengths": lengths}, {"offsets": offsets}):
        step = systolic.jit(lambda x, **segments: reduced(x, reduce, segments, initial=initial))
        for mine, theirs in zip(step(x, **segments), reduced(x, reduce, segments, initial=initial), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)


def test_lengths_that_are_not_all_of_it_are_an_error() -> None:
    step = systolic.jit(lambda x, lengths: torch.segment_reduce(x, "sum", lengths=lengths))
    with pytest.raises(OutOfRangeError, match="sum of lengths"):
        step(torch.ones(5), torch.tensor([2, 2]))
    unsafe = systolic.jit(lambda x, lengths: torch.segment_reduce(x, "sum", lengths=lengths, unsafe=True))
    assert unsafe(torch.arange(5.0), torch.tensor([2, 2])).tolist() == [1, 5]
