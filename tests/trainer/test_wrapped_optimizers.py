"""Optimizers as users of Lightning get them: wrapped, and still of their own class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader


def described(optimizer: Any) -> list[Any]:
    """What scripts ask of an optimizer."""
    own = getattr(optimizer, "optimizer", None)
    kinds = [torch.optim.SGD, torch.optim.Optimizer, torch.optim.Adam]
    return [
        [isinstance(optimizer, kind) for kind in kinds],
        type(own).__name__,
        repr(optimizer).splitlines()[0],
        len(optimizer.param_groups),
    ]


def test_manual_optimization() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def training_step(self: Any, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.loss(batch))
            optimizer.step()

        def on_train_start(self: Any) -> None:
            seen.append(described(self.optimizers()))
            seen.append(type(self.optimizers(use_pl_optimizer=False)).__name__)

        module = package.module(training_step=training_step, on_train_start=on_train_start)
        module.automatic_optimization = False
        package.trainer().fit(module, loader())
        return seen, module.state_dict()

    assert require_same(scenario)[0][0] == [[True, True, False], "SGD", "LightningSGD (", 1]


def test_optimizer_step_gets_the_wrapped_one() -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []

        def optimizer_step(self: Any, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any) -> None:
            seen.append(described(optimizer))
            if batch_idx % 2:
                optimizer.optimizer.step(closure=optimizer_closure)
            else:
                optimizer.step(closure=optimizer_closure)

        module = package.module(optimizer_step=optimizer_step)
        trainer = package.trainer()
        trainer.fit(module, loader())
        return seen[0], trainer.global_step, module.state_dict()

    assert require_same(scenario)[1] == 5


@pytest.mark.parametrize("manual", [False, True])
def test_a_step_that_returns_none(manual: bool) -> None:
    def scenario(package: Package) -> Any:
        module = package.module(training_step=lambda self, batch, batch_idx: None)
        module.automatic_optimization = not manual
        return package.warned(lambda: package.trainer().fit(module, loader()), "training_step", "None")

    assert require_same(scenario) is not manual
