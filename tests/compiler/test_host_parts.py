"""Functions of the host whose results the step computes with, against the same step in eager PyTorch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt
from scipy.stats import spearmanr
from sklearn.cluster import KMeans
from sklearn.metrics import confusion_matrix
from torch import nn

import systolic
from systolic.compiler import CaptureError, DataDependentError
from systolic.exceptions import OutOfRangeError

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

order = systolic.host(lambda x: np.argsort(x.sum(1).numpy(), kind="stable"))
mean = systolic.host(lambda x: float(x.double().mean()))
count = systolic.host(lambda x: int((x > 0).sum()))
sorting = systolic.host(lambda x: float(x.copy_(x.sort(0).values)[0, 0]))
described = systolic.host(
    lambda x: {"sign": "plus" if x.sum() > 0 else "minus", "large": bool(x.max() > 1), "values": [x, None]}
)


def _function_of_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x[torch.from_numpy(order(x))] * y).sum()


def _of_a_library(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    far = distance_transform_edt((x.detach() > 0).cpu().numpy())
    return (x * torch.from_numpy(far).float()).mean()


def _in_a_loop(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = [torch.as_tensor(distance_transform_edt((row.detach() > 0).numpy())) for row in x]
    return (x * torch.stack(found)).sum().float()


def _one_of_another(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    far = distance_transform_edt((x.detach() > 0).numpy())
    again = distance_transform_edt(far > far.mean())
    return (x * torch.from_numpy(again)).sum().float()


def _numpys(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    weights = np.interp(x.detach().numpy(), [-3.0, 0.0, 3.0], [0.0, 1.0, 5.0])
    return (x * torch.from_numpy(weights)).sum().float()


def _sizes_that_change(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    labels = (y[:, 0].abs() * 2).long()
    _, places = np.unique(labels.numpy(), return_index=True)
    return x[places].pow(2).sum()


def _a_number(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * mean(x)).sum() + mean(y) / 2


def _a_branch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum() if mean(x) > 0 else (x - 1).pow(2).sum()


def _a_size(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[: max(1, count(y) // 8)].pow(2).sum() * count(y)


def _containers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = described(x)
    return (found["values"][0] * x).sum() * (2 if found["large"] else 3) + (1 if found["sign"] == "plus" else -1)


def _under_a_condition(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if y.sum() > 0:
        return _function_of_tensors(x, y)
    return _a_number(x, y)


def _written_to_before_and_after(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own = y.clone()
    own += 1
    array = own.numpy()
    places = np.lexsort((array[:, 1], array[:, 0]))
    own.mul_(-1)
    return (x[places] * own).sum()


def _shown_and_used(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = confusion_matrix((y[:, 0] > 0).numpy(), (x[:, 0] > 0).numpy(), labels=[False, True])
    return (x.sum() * torch.from_numpy(found).diagonal().sum()).float()


def _into_an_array(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As monai's Hausdorff distance has it: SciPy writes to parts of an array."""
    images = (x.detach() > 0).numpy().reshape(2, 4, 4)
    far = np.zeros_like(images, dtype=np.float64)
    for image, place in zip(images, range(2), strict=True):
        distance_transform_edt(image, distances=far[place])
    return (x * torch.from_numpy(far).reshape(8, 4)).sum().float()


def _sorted_in_place(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    own = y.clone()
    smallest = sorting(own)
    return (x * own).sum() + x.mean() * smallest


def _in_half_precision(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    half = y.bfloat16()
    doubled = systolic.host(lambda x: x * 2)
    return (x * doubled(half).float()).sum() if mean(half) > 0 else (x - doubled(half[:4]).float().sum()).pow(2).mean()


def _numbers_for_it(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    clipped = systolic.host(lambda x, least, text: np.maximum(x.numpy(), least) * len(text))
    return (x * torch.from_numpy(clipped(x, least=y.mean().item(), text=f"{float(y.sum()):.3f}"))).sum()


LOSSES: list[Loss] = [
    _function_of_tensors, _of_a_library, _in_a_loop, _one_of_another, _numpys, _sizes_that_change, _a_number, _a_branch, _a_size,
    _containers, _under_a_condition, _written_to_before_and_after, _shown_and_used,
    _numbers_for_it, _into_an_array, _sorted_in_place, _in_half_precision,
]  # fmt: skip


def trained(loss: Loss, wrap: Callable[[Any], Any]) -> tuple[list[float], torch.Tensor]:
    """Losses of six steps of gradient descent, and the weight after them."""
    torch.manual_seed(0)
    weight = torch.randn(4, 4, requires_grad=True)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        found = loss(x @ weight, y)
        (gradient,) = torch.autograd.grad(found, weight)
        with torch.no_grad():
            weight.sub_(0.01 * gradient)
        return found.detach()

    own = wrap(step)
    losses = [float(own(torch.randn(8, 4), torch.randn(8, 4))) for _ in range(6)]
    return losses, torch.tensor(weight.tolist())


@pytest.mark.thin(4, 2)
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
def test_steps_equal_eager_ones(loss: Loss, devices: int) -> None:
    losses, weight = trained(loss, lambda step: step)
    found, own = trained(loss, lambda step: systolic.jit(step, devices=jax.devices()[:devices]))
    np.testing.assert_allclose(found, losses, rtol=2e-4, atol=1e-4)
    torch.testing.assert_close(own, weight, rtol=2e-4, atol=1e-4)


def programs_before(step: Any) -> list[int]:
    """How many functions of the host each program has that runs before the step's own."""
    return [len(parts) for _, parts in step._engine._entries[0].program.before]


@pytest.mark.parametrize(("loss", "programs"), [(_in_a_loop, [8]), (_one_of_another, [1, 1])])
def test_functions_that_take_nothing_of_each_other_need_one_program(loss: Loss, programs: list[int]) -> None:
    step: Any = systolic.jit(loss)
    step(torch.randn(8, 4), torch.randn(8, 4))
    assert programs_before(step) == programs


def test_both_programs_draw_the_same_masks() -> None:
    same = systolic.host(lambda x: x.clone())

    def step(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dropped = F.dropout(x, 0.5)
        noisy = dropped + torch.randn_like(x)
        return (same(noisy) - noisy).abs().max(), dropped

    compiled: Any = systolic.jit(step, devices=jax.devices())
    masks = []
    for _ in range(3):
        apart, dropped = compiled(torch.ones(8, 64))
        assert float(apart) == 0.0
        masks.append(dropped.clone())
    assert not torch.equal(masks[1], masks[2])


def test_it_is_called_once_in_a_step_with_what_the_step_had() -> None:
    seen: list[list[float]] = []
    module = nn.Linear(2, 1, bias=False)
    nn.init.ones_(module.weight)

    def measured(x: torch.Tensor) -> float:
        seen.append(x.tolist())
        return float((x * module.weight.detach().cpu()).sum())

    measure = systolic.host(measured)

    def step(x: torch.Tensor) -> torch.Tensor:
        found = measure(x * 2) * x.sum()
        with torch.no_grad():
            module.weight.add_(1.0)
        return found

    compiled: Any = systolic.jit(step)
    assert compiled(torch.tensor([1.0, 2.0])).item() == 6.0 * 3
    seen.clear()  # the trace has called it, too
    assert compiled(torch.tensor([1.0, 3.0])).item() == 16.0 * 4
    assert compiled(torch.tensor([0.0, 1.0])).item() == 6.0 * 1
    assert seen == [[2.0, 6.0], [0.0, 2.0]]


def test_its_error_is_the_users_and_the_step_is_not_run() -> None:
    weight = torch.zeros(1)

    def failing(x: torch.Tensor) -> float:
        if x.sum() > 5:
            raise KeyError("too large")
        return 1.0

    check = systolic.host(failing)

    def step(x: torch.Tensor) -> torch.Tensor:
        weight.add_(check(x))
        return weight * 1

    compiled: Any = systolic.jit(step)
    assert compiled(torch.ones(2)).item() == 1.0
    with pytest.raises(KeyError, match="too large"):
        compiled(torch.ones(2) * 3)
    assert compiled(torch.ones(2)).item() == 2.0


def test_an_index_outside_comes_before_it() -> None:
    called: list[int] = []
    table, note = torch.arange(4.0), systolic.host(lambda x: float(called.append(0) or x.sum()))

    def step(places: torch.Tensor) -> torch.Tensor:
        return table[places] * note(table[places])

    compiled: Any = systolic.jit(step)
    assert compiled(torch.tensor([1, 2])).tolist() == [3.0, 6.0]
    called.clear()
    with pytest.raises(OutOfRangeError, match="out of range"):
        compiled(torch.tensor([1, 9]))
    assert called == []
    assert compiled(torch.tensor([1, 3])).tolist() == [4.0, 12.0]


def test_one_that_is_called_after_the_step_must_not_write() -> None:
    kept: list[Any] = []
    negated = systolic.host(lambda x: x.mul_(-1).max())

    def step(x: torch.Tensor) -> torch.Tensor:
        own = x + 1
        kept.append(negated(own))  # nobody computes with it
        return own

    compiled: Any = systolic.jit(step)
    with pytest.raises(CaptureError, match="writes to an array that it is given"):
        compiled(torch.arange(4.0))


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x * spearmanr(x.numpy(), x.numpy()).statistic, "Received: scipy.stats.*SignificanceResult"),
        (lambda x: torch.vmap(lambda one: one * mean(one))(x), "inside of a function of torch.func"),
        (lambda x: x * systolic.host(lambda x: object())(x), "Received: builtins.object"),
    ],
)
def test_what_it_cannot_give_is_named(function: Any, text: str) -> None:
    with pytest.raises(CaptureError, match=text):
        systolic.jit(function)(torch.randn(3))


def test_methods_of_objects_are_named() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        found = KMeans(2, n_init=1).fit(x.numpy())
        return x * torch.from_numpy(found.cluster_centers_).sum()

    with pytest.raises(
        DataDependentError, match=r"(?s)hands a tensor's values to NumPy, or to a library.*KMeans\(2.*systolic.host"
    ):
        systolic.jit(step)(torch.randn(6, 2))


def test_its_cost_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    largest = systolic.host(lambda x: float(x.max()))
    step: Any = systolic.jit(lambda x: x * largest(x))
    with caplog.at_level(logging.INFO, "systolic"):
        for _ in range(45):
            step(torch.ones(2))
    told = [record.getMessage() for record in caplog.records if "is called on the host in every step" in record.getMessage()]
    assert len(told) == 1
    assert "ms for both (median of 20)" in told[0]
