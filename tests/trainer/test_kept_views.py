"""Tensors over the memory of parameters that hooks take before the first step: they are read and written as PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning


def of_state_dict(module: Any) -> list[torch.Tensor]:
    return list(module.state_dict().values())


def of_data(module: Any) -> list[torch.Tensor]:
    return [p.data for p in module.parameters()]


def detached(module: Any) -> list[torch.Tensor]:
    return [p.detach() for p in module.parameters()]


@pytest.mark.parametrize("sanity", [0, 2])
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("taken", [of_state_dict, of_data, detached])
def test_views_taken_when_training_begins_follow_it(taken: Any, devices: int, sanity: int) -> None:
    """An average of weights that are kept once is one of the weights of every step."""

    def on_train_start(module: Any) -> None:
        module.__dict__["views"] = taken(module)
        module.__dict__["averages"] = [view.clone() for view in module.views]

    def on_train_batch_end(module: Any, outputs: Any, batch: Any, i: int) -> None:
        for average, view in zip(module.averages, module.views, strict=True):
            average.lerp_(view, 0.5)
        module.seen.append([float(view.sum()) for view in module.views])
        if i == 1:
            module.views[0].zero_()

    def held(module: Any) -> Any:
        return [module.seen, [average.flatten().tolist() for average in module.averages]]

    methods = {"on_train_start": on_train_start, "on_train_batch_end": on_train_batch_end}
    beside_lightning(methods, held, devices=devices, num_sanity_val_steps=sanity)
