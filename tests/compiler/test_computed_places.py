"""Tensors indexed by one whole number that the program computes: one program for all of its values, equal to eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import systolic

T = torch.Tensor


def added(x: T, t: T) -> T:
    y = x * 1
    y[:, t] += 2.0
    y[0, t] = x[1].sum()
    return y.square().mean()


def viewed(x: T, t: T) -> T:
    y = x * 1
    row = y.mT[t]
    row.mul_(3)
    return y.square().mean()


def written_by_a_slice(x: T, t: T) -> T:
    y, i = x * 1, t.view(1) // 3
    y[:, i : i + 3] += 2.0
    y[1, i : i + 3] = x[0, :3]
    return y.square().mean()


def sliced(x: T, i: T) -> T:
    part = x[..., i : i + 3]
    assert part.shape == (3, 3)
    return part.square().mean()


READS: dict[str, Callable[[T, T], T]] = {
    "behind a slice": lambda x, t: x[:, t].square().mean(),
    "alone": lambda x, t: x.mT[t].square().mean(),
    "from the end": lambda x, t: x[:, t - 8].square().mean(),
    "of an item": lambda x, t: x[:, t.item()].square().mean(),  # type: ignore[index]
    "behind an ellipsis": lambda x, t: x[..., t].square().mean(),
    "with a new dimension": lambda x, t: x[None, :, t, None].square().mean() * x[None, 1:, t].sum(),
    "two of them": lambda x, t: x[t % 3, t] * x.sum(),
    "beside a mask": lambda x, t: x[torch.tensor([True, False, True]), t].square().sum(),
    "beside a list": lambda x, t: x[[0, 2], t].square().sum(),
    "of four dimensions": lambda x, t: x.view(1, 3, 2, 4)[..., t % 2, 1:].square().sum(),
    "whole numbers of other kinds": lambda x, t: x[:, t.int()].sum() * x[:, t.short()].sum(),
    "a slice": lambda x, t: sliced(x, t // 3),
    "a slice by a vector of one element": lambda x, t: sliced(x, t.view(1) // 3),
    "a slice by a matrix of one element": lambda x, t: sliced(x, t.int().view(1, 1) // 3) + x[t.view(1) // 8 :].mean(),
    "written by a slice": written_by_a_slice,
    "written": added,
    "written through a view": viewed,
}


def step_of(body: Callable[[T, T], T], model: nn.Module) -> Callable[[T], T]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: T) -> T:
        h = model(x)
        loss = body(h, h.detach().mean(0).argmax())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", READS)
def test_one_program_for_all_places(name: str) -> None:
    torch.manual_seed(0)
    model: Any = nn.Linear(8, 8).double()
    eager = copy.deepcopy(model)
    compiled, plain = systolic.jit(step_of(READS[name], model)), step_of(READS[name], eager)
    places = set()
    for _ in range(12):
        x = torch.randn(3, 8, dtype=torch.float64) * 3
        places.add(int(eager(x).mean(0).argmax()))
        torch.testing.assert_close(compiled(x), plain(x), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(model.weight.detach(), eager.weight.detach(), rtol=1e-9, atol=1e-12)
    assert len(places) > 2
    assert len(compiled.compiles) == 1, [one.reason for one in compiled.compiles]


def test_eight_cores() -> None:
    import jax

    step = systolic.jit(lambda x, table, t: table[t] + x.mean(), devices=jax.devices()[:8])
    table, x = torch.randn(5, 3), torch.randn(16, 3)
    for t in (4, 0, 2):
        torch.testing.assert_close(step(x, table, torch.tensor(t)), table[t] + x.mean())
    assert len(step.compiles) == 1


@pytest.mark.parametrize("place", [8, -9])
def test_a_place_outside_is_an_error(place: int) -> None:
    step = systolic.jit(lambda x, t: x[:, t].sum())
    x = torch.randn(3, 8)
    step(x, torch.tensor(3))
    with pytest.raises(systolic.exceptions.OutOfRangeError, match=str(place)):
        step(x, torch.tensor(place))


def test_under_vmap_a_place_is_of_each_sample() -> None:
    x, t = torch.randn(4, 8), torch.tensor([1, 0, 7, 3])
    step = systolic.jit(lambda x, t: torch.vmap(lambda row, place: row.gather(0, place[None])[0] * row[2])(x, t))
    torch.testing.assert_close(step(x, t), x[torch.arange(4), t] * x[:, 2])


def test_asking_whether_a_place_is_the_last_one_keeps_the_numbers_right() -> None:
    step = systolic.jit(lambda x, t: x.narrow(1, t.item(), 1).mean())
    for t in (3, 7, 0, 3):
        x = torch.randn(3, 8)
        torch.testing.assert_close(step(x, torch.tensor(t)), x[:, t].mean())
