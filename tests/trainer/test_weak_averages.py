"""Averages that refer weakly to the parameters and keep clones of them (torch_ema), swapped in by `train()` and `eval()`."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from beside_lightning import beside_lightning, loader, module_of, trainer_of

import systolic

T = torch.Tensor


class Average:
    """As torch_ema's ExponentialMovingAverage: clones that are kept have a graph, which holds the parameters."""

    def __init__(self, parameters: Any) -> None:
        listed = list(parameters)
        self.shadows = [p.clone().detach() for p in listed]
        self.kept: Any = None
        self.parameters = [weakref.ref(p) for p in listed]

    def _listed(self) -> list[T]:
        return [p for p in (one() for one in self.parameters) if p is not None]

    def update(self) -> None:
        with torch.no_grad():
            for shadow, p in zip(self.shadows, self._listed(), strict=True):
                shadow.sub_(0.1 * (shadow - p))

    def enter(self) -> None:
        self.kept = [p.clone() for p in self._listed()]
        for shadow, p in zip(self.shadows, self._listed(), strict=True):
            p.data.copy_(shadow.data)

    def leave(self) -> None:
        for kept, p in zip(self.kept, self._listed(), strict=True):
            p.data.copy_(kept.data)


@pytest.mark.parametrize("updates", [True, False])
def test_an_average_is_validated(updates: bool) -> None:
    def prepare(module: Any) -> None:
        module.average = Average(module.parameters())

    def train(module: Any, mode: bool = True) -> Any:
        torch.nn.Module.train(module, mode)
        average = module.__dict__.get("average")
        if average is not None and not mode:
            average.enter()
        elif average is not None and average.kept is not None:
            average.leave()
        return module

    def optimizer_step(module: Any, epoch: int, batch_idx: int, optimizer: Any, closure: Any) -> None:
        optimizer.step(closure)
        if updates:
            module.average.update()

    def validation_step(module: Any, batch: Any, i: int) -> None:
        module.log("val_loss", module.loss(batch))

    methods = {"train": train, "optimizer_step": optimizer_step, "validation_step": validation_step}
    module = beside_lightning(
        methods, lambda module: [s.sum().item() for s in module.average.shadows], prepare=prepare, epochs=3
    )
    assert len(module.trainer.compiles) <= 6, [one.reason for one in module.trainer.compiles]


def test_a_graph_of_the_value_before_the_steps_goes_no_further() -> None:
    module = module_of(systolic, {}, lambda module: None)
    weak = [weakref.ref(p) for p in module.parameters()]
    old = sum(p.clone().sum() for p in module.parameters())
    trainer_of(systolic).fit(module, loader(48, 1))
    assert all(one() is p for one, p in zip(weak, module.parameters(), strict=True))
    with pytest.raises(RuntimeError, match=r"before a step: its value has moved since"):
        old.backward()
