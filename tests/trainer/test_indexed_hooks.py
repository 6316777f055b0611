"""Hooks of evaluated batches get the number of the loader where there are several, and need not take it where there is one."""

from __future__ import annotations

from typing import Any

import pytest
from trainer.as_lightning import Package, require_same
from trainer.three_ways import loader, quiet_trainer, regression

import systolic as L


def evaluated(package: Package, loaders: int, stage: str, **methods: Any) -> None:
    """Run one evaluation with hooks of a module."""
    step = {f"{stage}_step": lambda self, batch, batch_idx, dataloader_idx=0: None}
    method = getattr(package.trainer(), {"validation": "validate"}.get(stage, stage))
    method(package.module(**step, **methods), [loader(count=8) for _ in range(loaders)])


@pytest.mark.parametrize("stage", ["validation", "test", "predict"])
@pytest.mark.parametrize("loaders", [1, 2])
def test_the_number_of_the_loader(stage: str, loaders: int) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        hooks = {
            f"on_{stage}_batch_start": lambda self, batch, batch_idx, dataloader_idx=7: seen.append(
                (batch_idx, dataloader_idx)
            ),
            f"on_{stage}_batch_end": lambda self, outputs, *rest: seen.append(len(rest)),
        }
        evaluated(package, loaders, stage, **hooks)
        return seen

    require_same(scenario)


@pytest.mark.parametrize("stage", ["validation", "test", "predict"])
def test_hooks_of_one_loader_need_not_take_it(stage: str) -> None:
    def scenario(package: Package) -> Any:
        seen: list[Any] = []
        hooks = {
            f"on_{stage}_batch_start": lambda self, batch, batch_idx: seen.append(batch_idx),
            f"on_{stage}_batch_end": lambda self, outputs, batch, batch_idx: seen.append(batch_idx),
        }
        evaluated(package, 1, stage, **hooks)
        return seen

    assert require_same(scenario) == [0, 0, 1, 1]


def test_callbacks_need_not_take_it() -> None:
    class Short(L.Callback):
        def __init__(self) -> None:
            self.seen: list[int] = []

        def on_validation_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            self.seen.append(batch_idx)

    short = Short()
    model = regression(L.LightningModule, validation_step=lambda self, batch: None)()
    quiet_trainer(callbacks=[short]).validate(model, loader(count=8))
    assert short.seen == [0, 1]
    indexed = regression(L.LightningModule, validation_step=lambda self, batch, batch_idx, dataloader_idx=0: None)()
    with pytest.raises(L.MisconfigurationException, match="on_validation_batch_end` of Short .* Add the argument"):
        quiet_trainer(callbacks=[short]).validate(indexed, [loader(count=8), loader(count=8)])


def _step(self: Any, batch: Any, batch_idx: int) -> None:
    """A step for one loader."""


def _requires(self: Any, batch: Any, batch_idx: int, dataloader_idx: int) -> None:
    """A step, or a hook before a batch, that cannot do without the number."""


def _any(self: Any, batch: Any, batch_idx: int, *rest: Any) -> None:
    """A step for any number of loaders."""


@pytest.mark.parametrize("stage", ["validation", "test", "predict"])
@pytest.mark.parametrize(
    ("loaders", "step", "start"),
    [(1, _requires, _any), (1, _any, _requires), (2, _step, _any), (2, _any, _step), (2, _any, _any), (1, _step, _step)],
    ids=["step-one", "hook-one", "step-several", "hook-several", "any-several", "none-one"],
)
def test_what_does_not_fit_the_number_of_loaders_is_refused_as_by_lightning(
    stage: str, loaders: int, step: Any, start: Any
) -> None:
    def scenario(package: Package) -> Any:
        methods = {f"{stage}_step": step, f"on_{stage}_batch_start": start}
        method = getattr(package.trainer(), {"validation": "validate"}.get(stage, stage))
        try:
            method(package.module(**methods), [loader(count=8) for _ in range(loaders)])
        except RuntimeError as error:
            return "dataloader_idx" in str(error)
        return None

    require_same(scenario)


@pytest.mark.parametrize("default", [7, 3])
def test_one_loader_leaves_a_steps_default_alone(default: int) -> None:
    def scenario(package: Package) -> Any:
        seen: list[int] = []

        def predict_step(self: Any, batch: Any, batch_idx: int, dataloader_idx: int = default) -> None:
            seen.append(dataloader_idx)

        package.trainer().predict(package.module(predict_step=predict_step), loader(count=4))
        return seen

    require_same(scenario)
