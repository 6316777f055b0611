"""`int(t)` of a computed whole number: one program where it is a place or a number, equal to eager PyTorch's results."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import systolic

T = torch.Tensor
ROWS = {4: 0.5, 8: 0.25}


class Memory(nn.Module):
    """A queue of keys with a pointer, as MoCo has it."""

    def __init__(self, asked: Callable[[T], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 8)
        self.asked = asked
        self.register_buffer("queue", torch.randn(8, 32))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    def forward(self, x: T) -> T:
        keys = self.net(x)
        loss = (keys @ self.queue.clone()).logsumexp(1).mean()
        with torch.no_grad():
            pointer = self.asked(self.pointer)
            self.queue[:, pointer : pointer + len(x)] = keys.detach().T
            self.pointer[0] = (pointer + len(x)) % 32
        return loss


def trained(model: nn.Module, batches: list[T], compiled: bool, devices: int = 1) -> tuple[list[float], int]:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: T) -> T:
        loss = model(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    import jax

    run: Any = systolic.jit(step, devices=jax.devices()[:devices]) if compiled else step
    return [float(run(x)) for x in batches], len(run.compiles) if compiled else 0


def require_equal(model: nn.Module, batches: list[T], programs: int, devices: int = 1) -> None:
    eager = copy.deepcopy(model)
    losses, made = trained(model, batches, compiled=True, devices=devices)
    assert losses == pytest.approx(trained(eager, batches, compiled=False)[0], rel=1e-5)
    for one, other in zip(model.state_dict().values(), eager.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    assert made == programs


@pytest.mark.parametrize("devices", [1, pytest.param(4, marks=pytest.mark.tables)])
@pytest.mark.parametrize("asked", [lambda t: int(t), lambda t: t.item(), lambda t: int(t.item())], ids=["int", "item", "both"])
def test_a_pointer_into_a_queue(asked: Callable[[T], Any], devices: int) -> None:
    generator = torch.Generator().manual_seed(1)
    batches = [torch.randn(4, 4, generator=generator) for _ in range(10)]
    require_equal(Memory(asked), batches, 1, devices)


class Asking(nn.Module):
    def __init__(self, body: Callable[[T, T], T]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(4, 6)
        self.body = body

    def forward(self, x: T) -> T:
        h = self.net(x)
        return self.body(h, x[:, 0].argmax()) + h.square().mean()


def windows(h: T, t: T) -> T:
    start = int(t)
    window = torch.cat([h, h])[start : start + 3]
    return (window * torch.arange(3.0)[:, None]).sum() + window[0].exp().mean()


def rolled(h: T, t: T) -> T:
    return (h.roll(-int(t), 0) * torch.arange(8.0)[:, None]).sum()


def as_number(h: T, t: T) -> T:
    k = int(t)
    return h.mean() * k + h.sum() * (k % 3) / (k + 1)


ONE: dict[str, Callable[[T, T], T]] = {
    "a window": windows,
    "a row": lambda h, t: h[int(t)].square().sum(),
    "a column": lambda h, t: h[:, int(t) % 6].exp().sum(),
    "a number": as_number,
    "rolled": rolled,
    "written": lambda h, t: (
        h.index_fill(0, torch.tensor([0]), 0.0).sum() + torch.zeros(8).index_add(0, t[None], h[:1, 0])[int(t)]
    ),
}
EACH: dict[str, Callable[[T, T], T]] = {
    "a key": lambda h, t: h.sum() * ROWS.get(int(t), 1.0),
    "an element of a list": lambda h, t: h.sum() * [1.0, 0.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0][int(t)],
    "a range": lambda h, t: sum((h[i].sum() * i for i in range(int(t))), h.mean()),
    "text": lambda h, t: h.sum() * len(json.dumps({"n": 10 ** int(t)})) * 0.1,
    "every other one": lambda h, t: h[: int(t) + 1 : 2].square().sum(),
}


def chosen() -> list[T]:
    generator = torch.Generator().manual_seed(2)
    found = []
    for place in (3, 0, 7, 4, 3, 5):
        x = torch.randn(8, 4, generator=generator)
        x[place, 0] = 9.0
        found.append(x)
    return found


@pytest.mark.parametrize("name", ONE)
def test_a_place_or_a_number_is_computed(name: str) -> None:
    require_equal(Asking(ONE[name]), chosen(), 1)


@pytest.mark.parametrize("name", EACH)
def test_what_python_needs_to_know_has_a_program_for_each_value(name: str) -> None:
    require_equal(Asking(EACH[name]), chosen(), 5)


def test_a_length_has_a_program_for_all_values() -> None:
    require_equal(Asking(lambda h, t: h[: int(t) + 1].square().sum()), chosen(), 2)


def test_a_window_that_reaches_beyond_the_end_is_pytorchs() -> None:
    """It is shorter there."""

    def body(h: T, t: T) -> T:
        start = int(t)
        return h[start : start + 3].square().sum()

    require_equal(Asking(body), chosen(), 2)
