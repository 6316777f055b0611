"""Weights that hooks put in place for a while, by `p.data = ...` and otherwise; what was kept of the others stays as it was."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, plain
from torch import nn

import systolic
from systolic.runtime import DeviceTensor, bring_back

Hook = Callable[[Any], None]


def keep_data(module: Any) -> None:
    module.kept = [p.data for p in module.parameters()]
    for p in module.parameters():
        p.data = p.data * 0.5


def keep_detached(module: Any) -> None:
    module.kept = [p.detach() for p in module.parameters()]
    for p in module.parameters():
        p.data = p.data * 0.5


def put_back(module: Any) -> None:
    for p, value in zip(module.parameters(), module.kept, strict=True):
        p.data = value
    module.kept = None


def _averaged(module: Any) -> list[torch.Tensor]:
    if module.kept is None:
        module.kept = [p.data.clone() * 0.5 for p in module.parameters()]
    return module.kept


def swap_data(module: Any) -> None:
    for p, average in zip(module.parameters(), _averaged(module), strict=True):
        p.data, average.data = average.data, p.data


def swap_data_the_other_way(module: Any) -> None:
    for p, average in zip(module.parameters(), _averaged(module), strict=True):
        average.data, p.data = p.data, average.data


def swap_by_copies(module: Any) -> None:
    for p, average in zip(module.parameters(), _averaged(module), strict=True):
        before = p.data.clone()
        p.data.copy_(average)
        average.copy_(before)


def halve_in_place(module: Any) -> None:
    module.kept = [p.data for p in module.parameters()]
    for p in module.parameters():
        p.data.mul_(0.5)


def double_what_was_kept(module: Any) -> None:
    for p, value in zip(module.parameters(), module.kept, strict=True):
        p.data.copy_(value * 2)
    module.kept = None


def other_parameters(module: Any) -> None:
    module.kept = module.inner.weight, module.outer.weight
    for layer in (module.inner, module.outer):
        layer.weight = nn.Parameter(layer.weight.detach() * 0.5)


def the_old_parameters(module: Any) -> None:
    module.inner.weight, module.outer.weight = module.kept
    module.kept = None


def another_layer(module: Any) -> None:
    module.__dict__["old"] = module.outer
    module.outer = copy.deepcopy(module.outer)
    module.outer.weight.data.mul_(0.5)


def the_old_layer(module: Any) -> None:
    module.outer = module.__dict__.pop("old")


def _score(module: Any, batch: Any, i: int) -> None:
    module.log("score", module.loss(batch))


def _start(module: Any) -> None:
    module.kept = None


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (keep_data, put_back), (keep_detached, put_back), (swap_data, swap_data),
        (swap_data_the_other_way, swap_data_the_other_way), (swap_by_copies, swap_by_copies),
        (halve_in_place, double_what_was_kept), (other_parameters, the_old_parameters), (another_layer, the_old_layer),
    ],
)  # fmt: skip
@pytest.mark.parametrize("devices", [1, 4])
def test_other_weights_in_validation(begin: Hook, end: Hook, devices: int) -> None:
    methods = {"validation_step": _score, "on_validation_epoch_start": begin, "on_validation_epoch_end": end}
    beside_lightning(methods, lambda module: plain(module.state_dict()), prepare=_start, devices=devices)


def test_what_was_kept_before_data_is_assigned_stays_as_it_was() -> None:
    layer = nn.Linear(3, 2, bias=False)
    step = systolic.jit(lambda x: layer(x).sum())
    step(torch.ones(1, 3))
    before = layer.weight.detach().clone()
    kept, view, row = layer.weight.data, layer.weight.detach().view(6), layer.weight[0].detach()
    layer.weight.data = torch.full((2, 3), 2.0)
    kept[1] = 7.0  # memory of its own by now
    assert step(torch.ones(1, 3)).item() == 12.0
    torch.testing.assert_close(kept, torch.stack([before[0], torch.full((3,), 7.0)]))
    torch.testing.assert_close(view, kept.view(6))
    torch.testing.assert_close(row, before[0])


def test_data_of_an_alias_is_its_own() -> None:
    layer = nn.Linear(3, 2, bias=False)
    step = systolic.jit(lambda x: layer(x).sum())
    expected = step(torch.ones(1, 3)).clone()
    alias, row = layer.weight.data, layer.weight.detach()[0]
    alias.data, row.data = torch.zeros(2, 3), torch.zeros(3)
    torch.testing.assert_close(step(torch.ones(1, 3)), expected)
    assert not torch.cat([alias[0], row]).any()


def test_an_ordinary_tensor_takes_the_value_of_a_weight() -> None:
    layer = nn.Linear(3, 2, bias=False)
    step = systolic.jit(lambda x: layer(x).sum())
    step(torch.ones(1, 3))
    plain_tensor = torch.zeros(2, 3)
    plain_tensor.data = layer.weight.data
    assert type(plain_tensor) is torch.Tensor
    torch.testing.assert_close(plain_tensor, layer.weight.detach().clone())


def test_an_alias_that_was_brought_back() -> None:
    layer = nn.Linear(3, 2, bias=False)
    step = systolic.jit(lambda x: layer(x).sum())
    step(torch.ones(1, 3))
    alias = layer.weight.data
    assert isinstance(alias, DeviceTensor)
    bring_back(alias)
    layer.weight.data = torch.full((2, 3), 2.0)
    assert step(torch.ones(1, 3)).item() == 12.0
    assert type(alias) is torch.Tensor
