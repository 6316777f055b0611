"""Orders of what a mask selects, with NaN, infinities and equals in it and beside it: one program, eager PyTorch's results."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from test_all_sizes import batches, chosen, require_equal
from torch import nn

import systolic

T = torch.Tensor

ORDERS: dict[str, Callable[[T], T]] = {
    "sorted": lambda z: z.sort(0).values,
    "sorted downwards": lambda z: z.sort(0, descending=True).values,
    "places": lambda z: z.sort(dim=0, stable=True).indices,
    "places downwards": lambda z: z.sort(dim=0, descending=True, stable=True).indices,
    "whole numbers": lambda z: torch.nan_to_num(z, 5).clamp(-3, 3).long().sort(0).values,
    "whole numbers downwards": lambda z: torch.nan_to_num(z, 5).clamp(-3, 3).long().sort(0, descending=True).values,
    "places of booleans": lambda z: (z > 0).sort(dim=0, stable=True).indices,
    "places of booleans downwards": lambda z: (z > 0).sort(dim=0, descending=True, stable=True).indices,
    "two largest": lambda z: z.topk(2, 0).values,
    "two smallest": lambda z: z.topk(2, 0, largest=False).values,
    "largest": lambda z: z.max(0).values,
    "place of the smallest": lambda z: z.min(0).indices,
    "place of the largest": lambda z: z.argmax(0),
    "logarithm of the sum of exponentials": lambda z: z.logsumexp(0),
    "sums up to each place": lambda z: z.cumsum(0),
    "counts up to each place": lambda z: (z > 0).cumsum(0),
    "the other way round": lambda z: z.flip(0),
    "rolled": lambda z: z.roll(2, 0),
    "rolled back": lambda z: z.roll(-1, 0),
    "the last": lambda z: z[-1],
    "all but the first": lambda z: z[1:],
    "all but the last two": lambda z: z[:-2],
}  # fmt: skip
UNUSUAL = torch.tensor([math.nan, math.inf, -math.inf], dtype=torch.float64)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_of_unusual_values(name: str) -> None:
    generator = torch.Generator().manual_seed(7)
    given = [(x, torch.where(torch.rand(y.shape, generator=generator) < 0.3, UNUSUAL, y)) for x, y in batches(6)]

    def body(model: nn.Module, x: T, y: T) -> T:
        ordered = torch.nan_to_num(ORDERS[name](y[chosen(x)]).double(), 7.0, 11.0, -13.0)
        weights = (torch.arange(ordered.shape[0]) + 1).double()[:, None] if ordered.dim() == 2 else 1.0
        return model(x).mean() * 0 + (ordered * weights * torch.arange(1.0, 4.0, dtype=torch.float64)).sum()

    compiled = require_equal(body, given)
    assert len(compiled.compiles) <= 3, [one.reason for one in compiled.compiles]


@pytest.mark.parametrize(
    "body", [lambda z: z.topk(5, 0).values, lambda z: z[4], lambda z: z[-5]], ids=["topk", "first", "last"]
)
def test_fewer_than_are_asked_for_are_an_error_as_in_pytorch(body: Callable[[T], T]) -> None:
    def step(x: T, y: T) -> T:
        return body(y[chosen(x)]).sum()

    compiled = systolic.jit(step)
    enough, more, few = batches(3)
    for batch in (enough, more, more):
        torch.testing.assert_close(compiled(*batch), step(*batch))
    assert len(compiled.compiles) == 2, [one.reason for one in compiled.compiles]
    with pytest.raises((IndexError, RuntimeError), match="out of|not in range"):
        step(*few)
    with pytest.raises((IndexError, RuntimeError), match="out of|not in range"):
        compiled(*few)
    torch.testing.assert_close(compiled(*enough), step(*enough))


def test_two_sizes_whose_product_is_the_same_by_chance() -> None:
    """The mean over all pairs divides by 6 * 4, by 4 * 6, and then by something else."""

    def body(model: nn.Module, x: T, y: T) -> T:
        h = model(x)
        near, far = h[x[:, 0] > 0], h[x[:, 1] > 0]
        return (near[:, None] - far[None]).square().sum(-1).mean()

    given = []
    for near, far in ((6, 4), (4, 6), (5, 7), (3, 8), (7, 2)):
        x, y = batches(1)[0]
        x = -x.abs()
        x[:near, 0] *= -1
        x[-far:, 1] *= -1
        given.append((x, y))
    require_equal(body, given)
