"""Ensembles as PyTorch's own tutorial makes them: stacked parameters, and a module of the meta device that `functional_call` fills."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from beside_lightning import beside_lightning, loader, module_of, trainer_of
from torch import nn
from torch.func import functional_call, stack_module_state

import systolic

T = torch.Tensor


def prepare(module: Any) -> None:
    models = [nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    module.stacked = nn.ParameterDict({name.replace(".", "_"): value.detach() for name, value in parameters.items()})
    module.names = list(parameters)
    module.of_norm = {name: value for name, value in buffers.items() if "num" not in name}
    skeleton = copy.deepcopy(models[0]).to("meta").eval()
    module.__dict__["skeleton"] = skeleton  # as Lightning would move a submodule


@pytest.mark.parametrize("devices", [1, 4])
def test_a_skeleton_without_values_is_filled(devices: int) -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        parameters = {name: module.stacked[name.replace(".", "_")] for name in module.names}

        def outputs(parameters: dict[str, T], buffers: dict[str, T], x: T) -> T:
            return functional_call(module.skeleton, {**parameters, **buffers}, (x,))

        found = torch.vmap(outputs, (0, 0, None))(parameters, module.of_norm, batch[0])
        return F.cross_entropy(found.flatten(0, 1), batch[1].repeat(3))

    held: Any = lambda module: [value.tolist() for value in module.stacked.values()]  # noqa: E731
    module = beside_lightning({"training_step": training_step}, held, prepare=prepare, devices=devices)
    assert len(module.trainer.compiles) == 1
    assert all(p.is_meta for p in module.skeleton.parameters())


def test_a_skeleton_that_is_used_without_values_is_an_error() -> None:
    def training_step(module: Any, batch: Any, i: int) -> T:
        return F.cross_entropy(module.skeleton(batch[0]), batch[1])

    with pytest.raises(Exception, match="meta"):
        trainer_of(systolic).fit(module_of(systolic, {"training_step": training_step}, prepare), loader(48, 1))
