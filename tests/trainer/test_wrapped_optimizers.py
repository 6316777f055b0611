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


def test_an_optimizer_may_call_the_closure_without_gradients() -> None:
    class Plain(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> Any:
            loss = closure()
            super().step()
            return loss

    def scenario(package: Package) -> Any:
        module = package.module(configure_optimizers=lambda self: Plain(self.parameters(), lr=0.1))
        package.trainer().fit(module, loader())
        return module.state_dict()

    require_same(scenario)


def test_the_closure_is_passed_by_name() -> None:
    class Strict(torch.optim.SGD):
        def step(self, *, closure: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            return super().step(closure)

    def scenario(package: Package) -> Any:
        module = package.module(configure_optimizers=lambda self: Strict(self.parameters(), lr=0.1))
        module.automatic_optimization = False

        def training_step(batch: Any, batch_idx: int) -> None:
            optimizer = module.optimizers()

            def closure() -> Any:
                optimizer.zero_grad()
                loss = module.loss(batch)
                module.manual_backward(loss)
                return loss

            optimizer.step(closure=closure)

        module.training_step = training_step
        package.trainer().fit(module, loader())
        return module.state_dict()

    require_same(scenario)
