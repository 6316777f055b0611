"""NumPy in compiled steps equals eager PyTorch: arrays of tensors, arrays that are drawn, and `float` of a value."""

from __future__ import annotations

import copy
import operator
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

import systolic
from systolic.compiler import DataDependentError, HiddenRandomnessError


def require_equal(function: Callable[[torch.Tensor], Any], *, programs: int = 1) -> None:
    """Five calls of one function, eager and compiled, with the same seeds: same results, same draws afterwards."""
    outcomes: list[Any] = []
    compiled: Any = systolic.jit(function)
    for call in (function, compiled):
        random.seed(7)
        np.random.seed(7)
        generator = torch.Generator().manual_seed(3)
        results = [call(torch.randn(6, 4, generator=generator)) for _ in range(5)]
        results = [[r.cpu() for r in (one if isinstance(one, tuple) else (one,))] for one in results]
        outcomes.append((results, random.random(), np.random.rand()))
    (eager, *ends), (ours, *our_ends) = outcomes
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
    assert ends == our_ends
    assert compiled.compile_count == programs


DRAWN: dict[str, Callable[[torch.Tensor], Any]] = {
    "normal": lambda x: x + torch.from_numpy(np.random.normal(size=x.shape).astype("float32")),
    "randn, then float": lambda x: x + torch.from_numpy(np.random.randn(6, 4)).float(),
    "arithmetic of NumPy": lambda x: x * torch.from_numpy(np.exp(-0.5 * np.abs(np.random.rand(6, 4))) + np.ones(4)),
    "a dtype of NumPy": lambda x: torch.as_tensor(np.random.uniform(-1, 1, (6, 4)).astype(np.float32)) * x,
    "torch.tensor": lambda x: x * torch.tensor(np.random.rand(4), dtype=torch.float32),
    "permutation": lambda x: x[np.random.permutation(len(x))],
    "permutation as a tensor": lambda x: x[torch.from_numpy(np.random.permutation(6)), :2],
    "choice without replacement": lambda x: x[np.random.choice(6, 3, replace=False)],
    "beta of every row": lambda x: torch.from_numpy(np.random.beta(0.4, 0.4, size=len(x))).float()[:, None] * x,
    "a mask": lambda x: x * torch.from_numpy(np.random.rand(6, 4) < 0.5),
    "an array times a tensor": lambda x: x * np.random.rand(6, 4),
    "one element": lambda x: x * np.random.rand(3)[1],
    "numbers between arrays": lambda x: x * random.random() + torch.from_numpy(np.random.rand(4)) * np.random.rand(),
    "sample": lambda x: x[random.sample(range(6), 3)],
    "choices in double precision": lambda x: x * torch.tensor(random.choices([0.1, 1.0, 2.0], k=4), dtype=torch.float64),
    "one of choices": lambda x: x * torch.tensor(random.choices([0.1, 1.0, 2.0], k=4)[0]),
    "choices": lambda x: x * torch.tensor(random.choices([0.5, 1.0, 2.0], k=4)),
    "choice by probabilities": lambda x: x[torch.from_numpy(np.random.choice(6, (2, 5), p=np.arange(6) / 15))],
    "choice of an array": lambda x: x * torch.from_numpy(np.random.choice(np.linspace(0, 1, 5), size=4)),
    "normal with an array of means": lambda x: x + torch.from_numpy(np.random.normal(np.arange(4.0), scale=np.ones((6, 4)))),
    "of several variables": lambda x: x + np.random.multivariate_normal(np.zeros(4), np.eye(4)).sum(),
}


@pytest.mark.thin(3)
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # PyTorch's, for an array times a tensor
@pytest.mark.parametrize("name", DRAWN)
def test_arrays_are_drawn_before_every_step(name: str) -> None:
    require_equal(DRAWN[name])


def shuffled(library: Any) -> Callable[[torch.Tensor], Any]:
    def function(x: torch.Tensor) -> Any:
        order = list(range(len(x)))
        library.shuffle(order)
        weights = [0.5, 1.0, 2.0]
        library.shuffle(weights)
        return x[order], torch.tensor(order), x[:, :3] * torch.tensor(weights)

    return function


@pytest.mark.parametrize("library", [random, np.random])
def test_a_list_of_numbers_is_shuffled(library: Any) -> None:
    require_equal(shuffled(library))


def noise_in_place(x: torch.Tensor) -> torch.Tensor:
    noise = torch.from_numpy(np.random.rand(6, 4))
    noise.mul_(2).clamp_(max=1)
    return x + noise


def test_what_is_drawn_may_be_written_to() -> None:
    require_equal(noise_in_place)


OF_ELEMENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a constant": lambda x: x[:, :2] * torch.tensor([torch.tensor(1.0), 2.0]),
    "a value": lambda x: x * torch.tensor([x.sum(), 2.0, 1, True]),
    "rows": lambda x: torch.as_tensor(((x.sum(), 2), (x[0, 1], 3.0))),
    "an iterated tensor": lambda x: torch.tensor(list(x[0])),
    "whole numbers": lambda x: torch.tensor([x.argmax(), 2]),
    "items": lambda x: torch.tensor([x.sum().item(), x[0, 0].item()]),
    "an item": lambda x: torch.tensor(x.sum().item()) * x,
    "one element": lambda x: torch.tensor([x.mean(0)[:1], 2.0]),
    "a dtype": lambda x: torch.tensor([x.sum(), 2], dtype=torch.float64),
    "the widest dtype": lambda x: torch.tensor([x.sum().double(), 0.1, x.argmax()]),
    "numbers of NumPy": lambda x: torch.tensor([x.sum(), np.float64(0.1), np.int32(3)]),
    "like another one": lambda x: x.double().new_tensor([x.sum(), 2]) * x[:, :2].new_tensor((1, x.argmax())),
    "narrow": lambda x: torch.asarray([x.sum().bfloat16(), True]),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_a_tensor_is_made_of_elements(name: str) -> None:
    require_equal(OF_ELEMENTS[name])


def deep_copies(x: torch.Tensor) -> Any:
    pair = copy.deepcopy({"a": x, "b": x})
    pair["a"].add_(1)
    weight = copy.deepcopy(torch.ones(4, requires_grad=True))
    (weight * x).sum().backward()
    return x, pair["b"], weight.grad


def test_deep_copies_are_tensors_of_their_own() -> None:
    require_equal(deep_copies)
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        systolic.jit(lambda x: copy.deepcopy(x * torch.ones(3, requires_grad=True)))(torch.ones(3))


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad:UserWarning")
@pytest.mark.parametrize("make", [torch.tensor, torch.as_tensor, torch.asarray])
def test_what_is_made_of_elements_has_no_gradient(make: Callable[[Any], torch.Tensor]) -> None:
    def gradient(x: torch.Tensor) -> Any:
        weight = torch.ones(4, requires_grad=True)
        made = make([(x * weight).sum(), 2.0])
        loss = ((x * weight).sum() * made.sum()) ** 2
        return made.requires_grad * torch.ones(1), *torch.autograd.grad(loss, weight)

    require_equal(gradient)


def test_tensors_of_several_elements_are_refused_as_in_eager() -> None:
    for call in (torch.tensor, systolic.jit(lambda x: torch.tensor([x, x]))):
        with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
            call([torch.ones(3)] * 2 if call is torch.tensor else torch.ones(3))


OF_TUPLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "numbers": lambda x: x[:, :2] * torch.tensor((0.4, 0.6)) + torch.as_tensor((1, 2)),
    "rows of numbers": lambda x: x[:2, :2] @ torch.tensor(((1.0, 2.0), (3.0, 4.0))),
    "drawn numbers": lambda x: x[:, :2] * torch.tensor((random.random(), np.random.rand())),
    "places": lambda x: (x[0, 1], x[(slice(None), None)], x[[0, 1], (2, 3)]),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", OF_TUPLES)
def test_tuples_are_what_they_were(name: str) -> None:
    require_equal(OF_TUPLES[name])


def write_at_places(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[np.random.permutation(6)[:2]] = torch.from_numpy(np.random.rand(2, 4)).float()
    y[1, 1:3] = np.random.rand()
    return y


def test_elements_are_written_at_places_that_are_drawn() -> None:
    require_equal(write_at_places)


def test_tensors_are_no_sequences_afterwards() -> None:
    require_equal(DRAWN["permutation"])
    assert "__getitem__" not in vars(torch.Tensor)
    assert torch.tensor([torch.tensor(1.0), 2.0]).tolist() == [1.0, 2.0]


OF_VALUES: dict[str, Callable[[torch.Tensor], Any]] = {
    "mean": lambda x: x * float(np.mean(x.numpy())),
    "methods": lambda x: x * x.numpy().std(axis=0).max().item(),
    "an element-wise function": lambda x: torch.from_numpy(np.exp(x.numpy()) / 2),
    "a norm": lambda x: x / np.linalg.norm(x.numpy()),
    "detached": lambda x: torch.from_numpy(np.clip((x * 2).detach().cpu().numpy(), -1, 1)),
    "float": lambda x: x * (1.0 / float(x.abs().max())),
    "float of an item": lambda x: x * float(x.sum().item()),
    "float of a whole number": lambda x: x * float((x > 0).sum().float()),
    "still a type": lambda x: x.to(torch.float64) * isinstance(float("1.5"), float) * float(x[0, 0]),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", OF_VALUES)
def test_functions_of_values(name: str) -> None:
    require_equal(OF_VALUES[name])


CONSTANT = np.linspace(0.5, 2.0, 4)

WITH_CONSTANTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "times": lambda x: x * CONSTANT,
    "plus float32": lambda x: x + CONSTANT.astype(np.float32),
    "minus whole numbers": lambda x: x - np.arange(4),
    "a quotient": lambda x: x / CONSTANT[None],
    "a quotient of whole numbers": lambda x: (x > 0).int() / np.arange(1, 5),
    "a product of matrices": lambda x: x @ np.ones((4, 2)),
    "half precision": lambda x: x.half() * CONSTANT.astype(np.float32),
    "a tensor of one element": lambda x: x.sum() * CONSTANT,
    "strides below zero": lambda x: x * CONSTANT[::-1],
    "numbers of NumPy": lambda x: np.float64(2) * x * np.float32(0.5),
    "an array that must not be written": lambda x: x * np.broadcast_to(np.float32(3.0), (4,)),
}


@pytest.mark.thin(2)
@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.parametrize("name", WITH_CONSTANTS)
def test_tensors_meet_constant_arrays(name: str) -> None:
    require_equal(WITH_CONSTANTS[name])


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.parametrize("operation", [operator.add, operator.sub, operator.mul, operator.truediv, operator.matmul])
def test_constant_arrays_give_numpys_dtypes(operation: Callable[..., Any]) -> None:
    arrays = [np.arange(1, 5).astype(kind) for kind in ("uint8", "int16", "int32", "int64", "float16", "float32", "float64")]
    kinds = (torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64)
    require_equal(lambda x: tuple(operation((x.abs() + 8).to(kind), array) for kind in kinds for array in arrays))


@pytest.mark.parametrize("compiled", [False, True])
def test_constant_arrays_are_refused_where_eager_refuses_them(compiled: bool) -> None:
    weight = torch.ones(4, requires_grad=True)
    jit: Any = systolic.jit if compiled else lambda function: function
    with pytest.raises(RuntimeError, match="Can't call numpy\\(\\) on Tensor that requires grad"):
        jit(lambda x: (x * weight) * CONSTANT)(torch.ones(4))
    with pytest.raises(TypeError, match="unsupported operand"):
        jit(lambda x: CONSTANT * x)(torch.ones(4))


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
@pytest.mark.parametrize("dtype", [np.longdouble, object, ">f4"])
def test_arrays_that_are_no_tensors_are_refused_with_their_line(dtype: Any) -> None:
    with pytest.raises((DataDependentError, TypeError)) as raised:
        systolic.jit(lambda x: x * np.ones(4, dtype))(torch.ones(4))
    assert "test_traced_arrays.py" in str(raised.value)


def test_memory_is_shared_as_in_eager() -> None:
    def writes(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.numpy()[0] = 5.0
        return y

    require_equal(writes)


KEPT: dict[str, Callable[[torch.Tensor, dict[str, Any]], Any]] = {
    "an entry": lambda y, kept: kept.update(y=y.numpy()),
    "appended": lambda y, kept: kept["list"].append(y.cpu().numpy()),
    "extended by rows": lambda y, kept: kept["list"].extend(y.numpy()),
    "inside of others": lambda y, kept: kept.update(y={"a": (y.numpy(), 3), "sum": y.sum().item()}),
    "computed": lambda y, kept: kept.update(y=(y.numpy() * 2).mean(axis=0)),
    "a scalar of NumPy": lambda y, kept: kept.update(y=y.numpy().max()),
    "without dimensions": lambda y, kept: kept.update(y=y.sum().numpy()),
    "whole numbers": lambda y, kept: kept["list"].append(y.argmax(-1).numpy()),
    "truths": lambda y, kept: kept["list"].append((y > 0).numpy()),
    "one of Python's numbers": lambda y, kept: kept.update(y=y.tolist()[1][2], whole=y.argmax().tolist()),
    "twice the same": lambda y, kept: kept["list"].extend([y.numpy(), y]),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", KEPT)
def test_arrays_that_a_step_keeps_are_numpys(name: str) -> None:
    def account(kept: dict[str, Any]) -> list[Any]:
        return [(type(one), *((one.dtype, one.shape) if hasattr(one, "shape") else ())) for one in tree_leaves(kept)]

    outcomes: list[dict[str, Any]] = []
    for compile in (False, True):
        kept: dict[str, Any] = {"list": []}

        def step(x: torch.Tensor, kept: dict[str, Any] = kept) -> torch.Tensor:
            y = torch.tanh(x)
            KEPT[name](y, kept)
            return y.sum()

        call: Any = systolic.jit(step) if compile else step
        generator = torch.Generator().manual_seed(3)
        for _ in range(3):
            call(torch.randn(6, 4, generator=generator))
        if compile:
            assert call.compile_count == 1
        outcomes.append(kept)
    eager, ours = (tree_map(lambda one: one.cpu() if isinstance(one, torch.Tensor) else one, kept) for kept in outcomes)
    assert account(ours) == account(eager)
    torch.testing.assert_close(tree_map(np.asarray, ours), tree_map(np.asarray, eager), rtol=1e-6, atol=1e-6)


def test_an_array_may_be_returned_and_written_to() -> None:
    compiled: Any = systolic.jit(lambda x: {"y": (x * 2).numpy()})
    first, second = compiled(torch.ones(3))["y"], compiled(torch.ones(3))["y"]
    assert type(first) is np.ndarray
    first += 1  # memory of its own, as in eager PyTorch
    assert first.tolist() == [3, 3, 3]
    assert second.tolist() == [2, 2, 2]


def test_an_array_of_a_weight_is_a_copy_as_of_the_steps_end() -> None:
    linear = torch.nn.Linear(2, 2)
    start, kept = linear.weight.detach().clone(), []

    def step(x: torch.Tensor) -> torch.Tensor:
        kept.append(linear.weight.detach().cpu().numpy())
        with torch.no_grad():
            linear.weight.add_(1)
        return x

    compiled: Any = systolic.jit(step)
    for _ in range(2):
        compiled(torch.ones(2))
    np.testing.assert_allclose(kept, [start + 1, start + 2])


def test_the_name_float_is_pythons_afterwards() -> None:
    require_equal(OF_VALUES["float"])
    assert "float" not in globals()


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: x * np.asarray(x).sum(), DataDependentError),
        (lambda x: x * len(str(x.numpy())), DataDependentError),
        (lambda x: x * torch.FloatTensor([x.sum(), 1.0, 2.0]), DataDependentError),
        (lambda x: x * len(np.random.bytes(3)), HiddenRandomnessError),
    ],
)
def test_what_wants_memory_is_refused(function: Callable[[torch.Tensor], Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="NumPy|numpy"):
        systolic.jit(function)(torch.ones(3, 3))


def test_what_eager_pytorch_refuses_is_refused() -> None:
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="Can't call numpy\\(\\) on Tensor that requires grad"):
        systolic.jit(lambda x: x * (x * weight).numpy().sum())(torch.ones(3))
    with pytest.raises(TypeError, match="unsupported operand"):
        systolic.jit(lambda x: np.random.rand(3) * x)(torch.ones(3))


def _all_at_once(kept: Any, places: Any, values: Any) -> None:
    kept[places] = values


def _one_by_one(kept: Any, places: Any, values: Any) -> None:
    for place, value in zip(places, values, strict=True):
        kept[place] = value


def _a_scalar(kept: Any, places: Any, values: Any) -> None:
    kept[0] = values[0]


def _a_sum(kept: Any, places: Any, values: Any) -> None:
    kept[0] += values.sum()


@pytest.mark.parametrize("write", [_all_at_once, _one_by_one, _a_scalar, _a_sum])
def test_an_array_that_keeps_values_is_refused_with_its_line(write: Callable[[Any, Any, Any], Any]) -> None:
    kept = np.zeros(8, dtype=np.float32)
    places = torch.tensor([1, 3, 2])

    def step(x: torch.Tensor) -> torch.Tensor:
        write(kept, places.numpy(), x.numpy())
        return x * 2

    with pytest.raises(DataDependentError, match=r"values to NumPy(.|\n)*test_traced_arrays.py(.|\n)*systolic.host"):
        systolic.jit(step)(torch.ones(3))
    assert not kept.any()


def test_what_numpy_itself_refuses_keeps_numpys_words() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        np.zeros(3)[0] = [1.0, 2.0]
        return x * 2

    with pytest.raises(ValueError, match="setting an array element with a sequence"):
        systolic.jit(step)(torch.ones(3))
