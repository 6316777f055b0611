"""Arguments of a compiled function, and what it does to them, beside eager PyTorch."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import systolic

T = torch.Tensor


def backward(x: T, y: T) -> T:
    loss = (x * y).square().sum()
    loss.backward()
    return loss.detach()


def twice(x: T, y: T) -> T:
    (x * y).sum().backward()
    loss = x.square().sum()
    loss.backward()
    return loss.detach()


def ascent(x: T, y: T) -> T:
    """As adversarial examples are made."""
    (x * y).sum().backward()
    assert x.grad is not None
    with torch.no_grad():
        return x + 0.1 * x.grad.sign()


FUNCTIONS: dict[str, Callable[[T, T], T]] = {
    "backward": backward,
    "twice": twice,
    "ascent": ascent,
    "grad": lambda x, y: torch.autograd.grad((x**3 * y).sum(), x)[0],
    "grad of grad": lambda x, y: torch.autograd.grad(torch.autograd.grad((x**3 * y).sum(), x, create_graph=True)[0].sum(), x)[
        0
    ],
    "no gradient": lambda x, y: (x * y).sum().detach(),
    "only asked": lambda x, y: x.detach() * (1.0 if x.requires_grad and not y.requires_grad else 2.0),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_arguments(name: str) -> None:
    step = systolic.jit(FUNCTIONS[name])
    mine, theirs = (torch.randn(4, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    for number in range(3):  # `.grad` is there from the second call on
        y = torch.full((4,), float(number + 1))
        torch.testing.assert_close(step(mine, y), FUNCTIONS[name](theirs, y))
        assert (mine.grad is None) == (theirs.grad is None)
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert step.compile_count == (1 if mine.grad is None else 2)


def test_arguments_with_and_without_gradients_have_programs_of_their_own() -> None:
    step = systolic.jit(FUNCTIONS["only asked"])
    plain, wanted = torch.ones(2), torch.ones(2, requires_grad=True)
    assert [step(x, torch.ones(2)).tolist() for x in (plain, wanted, plain)] == [[2, 2], [1, 1], [2, 2]]


def test_a_gradient_is_one_for_an_optimizer() -> None:
    x = torch.ones(3, requires_grad=True)
    systolic.jit(backward)(x, torch.tensor([1.0, 2.0, 3.0]))
    torch.optim.SGD([x], lr=0.1).step()
    torch.testing.assert_close(x.detach(), torch.tensor([0.8, 0.2, -0.8]))


def test_a_gradient_that_would_go_on_is_refused() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(ValueError, match="has computed of other tensors"):
        systolic.jit(backward)(x * 2, torch.ones(3))
    assert systolic.jit(FUNCTIONS["no gradient"])(x * 2, torch.ones(3)) == 6


def test_a_tensor_that_is_used_from_elsewhere_too_is_refused() -> None:
    shift = torch.ones(3, requires_grad=True)

    def step(weight: T, x: T) -> T:
        loss = (x + shift).square().mean() + weight.square().sum()
        loss.backward()
        return loss.detach()

    with pytest.raises(ValueError, match="uses it from elsewhere"):
        systolic.jit(step)(shift, torch.ones(2, 3))


def test_parameters_are_parts_of_the_state() -> None:
    def called(parameters: dict[str, T], model: nn.Module, x: T) -> T:
        loss = torch.func.functional_call(model, parameters, (x,)).square().mean()
        loss.backward()
        return loss.detach()

    def decayed(weight: T, model: nn.Module, x: T) -> T:
        loss = model(x).square().mean() + weight.square().sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(0.1 * weight.grad)
        return loss.detach()

    mine = nn.Linear(3, 1)
    theirs = copy.deepcopy(mine)
    first, second, x = systolic.jit(called), systolic.jit(decayed), torch.ones(2, 3)
    for _ in range(2):
        given = (dict(one.named_parameters()) for one in (mine, theirs))
        torch.testing.assert_close(first(next(given), mine, x), called(next(given), theirs, x))
        torch.testing.assert_close(second(mine.weight, mine, x), decayed(theirs.weight, theirs, x))
        for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one.detach(), other.detach())
            torch.testing.assert_close(one.grad, other.grad)


def scaled(x: T, rate: float, more: dict[str, float]) -> T:
    return x * rate + more["shift"]


def test_numbers_are_inputs_once_they_were_others() -> None:
    step, x = systolic.jit(scaled), torch.arange(4.0, dtype=torch.float64)
    for number in range(6):
        given = x, 0.1 + number / 7, {"shift": number}
        assert step(*given).tolist() == scaled(*given).tolist()
    assert [one.reason for one in step.compiles] == [
        "first call",
        "arguments.rate: 0.1 -> 0.24285714285714285; arguments.more[0]: 0 -> 1",
    ]


def test_numbers_that_decide_have_programs_of_their_own() -> None:
    sized, chosen, x = systolic.jit(lambda x, n: x[:n].sum()), systolic.jit(lambda x, n: x if n > 2 else -x), torch.ones(5)
    assert [float(sized(x, n)) for n in (1, 2, 3, 2, 1)] == [1, 2, 3, 2, 1]
    assert [float(chosen(x, n)[0]) for n in (1, 2, 3, 4, 1)] == [-1, -1, 1, 1, -1]
    assert sized.compile_count == 3
    assert chosen.compile_count == 2


class Record:
    """An object of the user's."""

    def __init__(self, x: T) -> None:
        self.x, self.count = x, 0


@dataclass
class Pair:
    x: T
    name: str


def add_in_place(x: T) -> T:
    x[0].add_(1)
    return x.sum()


def alias(x: T, y: T) -> T:
    x.add_(1)
    return y.sum()


def append(found: list[T]) -> T:
    found.append(found[0] * 2)
    return found[-1]


def put(found: dict[str, Any]) -> T:
    found["y"] = {"twice": found.pop("x") * 2, "count": 3}
    return found["y"]["twice"]


def exchange(pair: dict[str, list[T]]) -> T:
    pair["a"], pair["b"] = pair["b"], pair["a"]
    return pair["a"][0] - pair["b"][0]


def of_pair(pair: Pair) -> T:
    pair.x = pair.x * 3
    pair.name += "s"
    return pair.x


def of_record(record: Record, y: T) -> T:
    record.count += 1
    record.x = record.x + y
    return record.x * record.count


CALLS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "written in place": (add_in_place, lambda k: (torch.ones(2) * k,)),
    "the same tensor twice": (alias, lambda k: (lambda x: (x, x))(torch.ones(2) * k)),
    "one of three twice": (
        lambda x, y, z: x + 2 * y + 4 * z,
        lambda k: (lambda x, y: [(x, y, x), (x, x, y), (y, x, x), (x, y, x)][k])(torch.ones(2), torch.zeros(2)),
    ),
    "a number that nobody reads": (lambda x, d: d.update(y=x * 2), lambda k: (torch.ones(2), {"n": k, "m": k / 3})),
    "a list twice": (
        lambda a, b: a.append(b[0] * 2),
        lambda k: (lambda a: (a, a) if k % 2 else (a, [torch.zeros(2)]))([torch.ones(2) * k]),
    ),
    "a list": (append, lambda k: ([torch.ones(2) * k],)),
    "a dict": (put, lambda k: ({"x": torch.ones(2) * k, "z": 1},)),
    "lists that change places": (exchange, lambda k: ({"a": [torch.ones(2)], "b": [torch.ones(2) * k]},)),
    "a dataclass": (of_pair, lambda k: (Pair(torch.ones(2) * k, "name"),)),
    "an object": (of_record, lambda k: (Record(torch.ones(2) * k), torch.ones(2))),
    "an array": (lambda a, x: x * a.sum() + torch.from_numpy(a), lambda k: (np.ones(2, np.float32) * k, torch.ones(2))),
    "an array, reversed": (lambda a: torch.from_numpy(a.copy()) * 2, lambda k: (np.arange(3.0)[::-1] * k,)),
    "a number": (lambda x, factor: x * factor, lambda k: (torch.ones(2), k / 2)),
    "zeros of two signs": (lambda x, factor: x / factor, lambda k: (torch.ones(2), [0.0, -0.0][k % 2])),
    "a number of NumPy": (lambda x, factor: x * factor, lambda k: (torch.ones(2), np.float32(k))),
    "a set": (lambda x, names: x * len(names), lambda k: (torch.ones(2), set(range(k)))),
    "a size": (lambda x, size: x.new_zeros(size), lambda k: (torch.ones(2), torch.Size([2, k]))),
    "a function": (lambda x, function: function(x), lambda k: (torch.ones(2), [torch.neg, torch.square][k % 2])),
    "nothing": (lambda x, other=None: x if other is None else x * other, lambda k: (torch.ones(2), None)),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_does_to_its_arguments_what_eager_pytorch_does(name: str) -> None:
    function, make = CALLS[name]
    step = systolic.jit(function)
    for number in range(4):
        mine, theirs = make(number), make(number)
        assert plain(step(*mine)) == plain(function(*theirs))
        assert plain(mine) == plain(theirs)


def plain(value: Any) -> Any:
    """Everything in a value, to be compared."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return value.tolist(), value.dtype
    if isinstance(value, Record | Pair):
        return plain(vars(value))
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list | tuple) else repr(value)


def test_the_callers_own_objects_are_kept() -> None:
    x, inner = torch.ones(2), [torch.zeros(2)]
    outer: dict[str, Any] = {"x": x, "inner": inner}

    def step(outer: dict[str, Any]) -> T:
        outer["inner"].append(outer["x"])
        outer["again"] = outer["inner"]
        outer["x"].mul_(2)
        return outer["x"].sum()

    assert systolic.jit(step)(outer) == 4
    assert outer["x"] is x
    assert outer["inner"] is inner
    assert outer["again"] is inner
    assert inner[1] is x
    assert x.tolist() == [2, 2]


def test_models_and_optimizers_are_arguments() -> None:
    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: T) -> T:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled, x = systolic.jit(step), torch.ones(3, 2)
    for _ in range(2):
        mine = nn.Linear(2, 1)
        theirs = copy.deepcopy(mine)
        optimizers = [torch.optim.Adam(one.parameters(), 0.1) for one in (mine, theirs)]
        for _ in range(3):
            torch.testing.assert_close(compiled(mine, optimizers[0], x), step(theirs, optimizers[1], x))
        torch.testing.assert_close(mine.weight.detach(), theirs.weight.detach())
    compiled.release()
    assert type(mine.weight) is nn.Parameter


def test_a_compiled_function_in_another_one_is_a_part_of_it() -> None:
    layer = nn.Linear(2, 1)
    inner = systolic.jit(lambda x: layer(x).square())

    def step(x: T) -> T:
        loss = inner(x).mean()
        loss.backward()
        return loss.detach()

    compiled = systolic.jit(step)
    compiled(torch.ones(1, 2))
    assert compiled.compile_count == 1
    assert inner.compile_count == 0
    assert layer.weight.grad is not None


def test_a_shape_that_changes_in_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"changes the shape of an argument in place, from \(2, 3\) to \(3, 2\)"):
        systolic.jit(lambda x: x.t_().add_(1).sum())(torch.ones(2, 3))


def of_default(x: T, found: list[int] = []) -> T:  # noqa: B006
    found.append(1)
    return x * len(found)


def of_first(found: list[int], x: T) -> T:
    found.append(1)
    return x * len(found)


@pytest.mark.parametrize("way", ["default", "default of a helper", "partial"])
def test_lists_that_grow_between_the_calls(way: str) -> None:
    """They are in tuples, to which a trace cannot write."""
    own = types.FunctionType(of_default.__code__, globals(), "own", ([],))
    functions = {
        "default": own, "default of a helper": lambda x: own(x), "partial": functools.partial(of_first, []),
    }  # fmt: skip
    step = systolic.jit(functions[way])
    assert [float(step(torch.ones(()))) for _ in range(4)] == [1, 2, 3, 4]
