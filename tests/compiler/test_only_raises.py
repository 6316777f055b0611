"""Which conditions only decide between going on and raising, and what a compiled function does with them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import systolic
from systolic.compiler.capture._only_raises import _raises


class Asked:
    """An object that notes which answers to its truth end in an error."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.found: list[list[bool]] = []

    def __bool__(self) -> bool:
        frame = sys._getframe(1)
        self.found.append([one for one in (True, False) if _raises(frame.f_code, frame.f_lasti, one)])
        return self.answer


def if_raise(one: Asked) -> None:
    if one:
        raise ValueError(f"{'yes' if one.found else 'no'}: {[n + 1 for n in range(3)]}")


def if_not_raise(one: Asked) -> None:
    if not one:
        raise ValueError


def asserted(one: Asked) -> None:
    assert one, "told"


def if_and_if(one: Asked) -> None:
    if len(one.found) == 0:
        if one:
            raise ValueError
        one.found.append([])


def either(one: Asked) -> None:
    if one or one:
        raise ValueError


def in_a_loop(one: Asked) -> None:
    for _ in range(1):
        if one:
            for name in ("a", "b"):
                one.found.append([name == "c"])
            raise ValueError


def in_no_grad(one: Asked) -> None:
    with torch.no_grad():
        assert one


def told_otherwise(one: Asked) -> None:
    try:
        assert one
    except AssertionError as error:
        raise ValueError from error


def with_an_end(one: Asked) -> None:
    try:
        assert one
    finally:
        one.found.append([])


@pytest.mark.parametrize(
    ("function", "answer", "raising"),
    [
        (if_raise, False, [True]), (if_raise, True, [True]), (if_not_raise, True, [False]), (asserted, True, [False]),
        (asserted, False, [False]), (if_and_if, False, [True]), (either, False, [True]), (in_a_loop, False, [True]),
        (in_no_grad, True, [False]), (told_otherwise, True, [False]), (with_an_end, True, [False]),
    ],
)  # fmt: skip
def test_the_answer_that_raises(function: Callable[[Asked], None], answer: bool, raising: list[bool]) -> None:
    one = Asked(answer)
    with contextlib.suppress(ValueError, AssertionError):
        function(one)
    assert one.found[0] == raising


def prints(one: Asked) -> None:
    if one:
        one.found.append([])


def catches(one: Asked) -> None:
    try:
        assert one
    except AssertionError:
        one.answer = True


def catches_some(one: Asked) -> None:
    try:
        assert one
    except AssertionError:
        if len(one.found) > 1:
            raise


def suppresses(one: Asked) -> None:
    with contextlib.suppress(AssertionError):
        assert one


def first_of_two(one: Asked) -> None:
    if one and len(one.found) > 5:
        raise ValueError


def as_a_value(one: Asked) -> object:
    return one and 1


def repeats(one: Asked) -> None:
    while one:
        break


@pytest.mark.parametrize("function", [prints, catches, catches_some, suppresses, first_of_two, as_a_value, repeats])
@pytest.mark.parametrize("answer", [True, False])
def test_conditions_that_decide_more(function: Callable[[Asked], object], answer: bool) -> None:
    one = Asked(answer)
    with contextlib.suppress(AssertionError):
        function(one)
    assert one.found[0] == []


T = torch.Tensor


def wants_small(x: T) -> T:
    if x.max() > 5:
        raise ValueError(f"{x.max().item():.0f} is more than 5")
    return x


def wants_finite(x: T) -> T:
    torch._assert(torch.isfinite(x).all(), "not finite")
    return x


def wants_positive(x: T) -> T:
    torch.distributions.Exponential(x.exp().where(x != 4, -1.0), validate_args=True)
    return x


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize(
    ("wants", "bad", "kind", "text"),
    [
        (wants_small, 6.0, ValueError, "6 is more than 5"),
        (wants_finite, float("nan"), AssertionError, "not finite"),
        (wants_positive, 4.0, ValueError, "Expected parameter rate"),
    ],
)
def test_the_error_is_eager_pytorchs(devices: int, wants: Callable[[T], T], bad: float, kind: type, text: str) -> None:
    torch.manual_seed(0)
    model, seen = nn.Linear(4, 2), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x: T) -> T:
        optimizer.zero_grad()
        loss = model(wants(x)).square().mean()
        loss.backward()
        optimizer.step()
        seen.append(1)
        return loss.detach()

    good, wrong = torch.ones(8, 4), torch.ones(8, 4)
    wrong[5, 1] = bad
    with pytest.raises(kind, match=text):
        step(wrong)
    seen.clear()
    compiled = systolic.jit(step, devices=systolic.runtime.jax_devices()[:devices])
    with pytest.raises(kind, match=text):  # before any batch that is as it should be
        compiled(wrong)
    assert not seen
    first = float(compiled(good))
    before = [p.clone() for p in model.parameters()]
    with pytest.raises(kind, match=text):
        compiled(wrong)
    for received, expected in zip(model.parameters(), before, strict=True):
        assert torch.equal(received, expected)
    assert float(compiled(good)) < first
    assert len(seen) == 2
    assert compiled.compile_count == 2  # without gradients, and with those of the step before


def test_the_first_error_of_a_step_is_raised() -> None:
    """As in eager PyTorch: by the order of the code, of conditions and of indices in ops."""
    table = torch.ones(4, 2)

    def guarded(index: T) -> T:
        assert index.max() < 4, "guarded"
        return nn.functional.embedding(index, table).sum()

    def looked_at(index: T) -> T:
        rows = nn.functional.embedding(index, table).sum()
        assert index.max() < 4, "looked at"
        return rows

    for function, kind in ((guarded, AssertionError), (looked_at, IndexError)):
        compiled = systolic.jit(function)
        assert float(compiled(torch.tensor([1, 3]))) == 4
        for call in (function, compiled):
            with pytest.raises(kind):
                call(torch.tensor([1, 9]))


def test_an_error_on_another_way_is_found_there() -> None:
    def step(x: T) -> T:
        if x.sum() > 0:
            assert x.max() < 5, "large"
            return x * 2
        assert x.min() > -5, "small"
        return x * 3

    compiled = systolic.jit(step)
    for value in (1.0, -1.0, 6.0, -6.0, 2.0, -2.0):
        x: Any = torch.full((4,), value)
        if abs(value) > 5:
            with pytest.raises(AssertionError, match="large" if value > 0 else "small"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), step(x))
    assert compiled.compile_count == 2


def test_a_condition_that_is_caught_decides_the_way() -> None:
    def step(x: T) -> T:
        try:
            wants_small(x)
        except ValueError:
            return -x
        return x

    compiled = systolic.jit(step)
    for value in (1.0, 6.0, 2.0):
        torch.testing.assert_close(compiled(torch.full((4,), value)), step(torch.full((4,), value)))


def test_a_step_without_python_code_asks_too() -> None:
    larger = systolic.jit(max)
    for value in (1.0, 3.0, 1.0):
        assert float(larger(torch.tensor(value), torch.tensor(2.0))) == max(value, 2.0)
