"""Subclasses of EarlyStopping override and call the protected methods that Lightning's has: training ends after the same epoch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import lightning
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import systolic

Subclass = Callable[[Any], type]


def fitted(library: Any, subclass: Subclass, values: list[float], **arguments: Any) -> tuple[Any, Any]:
    """The callback, and the Trainer that logged a value as `v` in each validation, and trained for as many epochs at most."""

    class Logs(library.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.values = torch.nn.Linear(1, 1), iter(values)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("v", next(self.values))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    callback = subclass(library.pytorch.callbacks.EarlyStopping)(monitor="v", **arguments)
    trainer = library.Trainer(
        accelerator="cpu", devices=1, max_epochs=len(values), logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=0, callbacks=[callback],
    )  # fmt: skip
    data = DataLoader(TensorDataset(torch.ones(2, 1)), 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(Logs(), data, data)
    return callback, trainer


def both(subclass: Subclass, values: list[float], **arguments: Any) -> tuple[Any, Any, int]:
    """Lightning's callback and systolic's, and after how many epochs both ended training, for the same reason."""
    theirs, expected = fitted(lightning, subclass, values, **arguments)
    ours, found = fitted(systolic, subclass, values, **arguments)
    assert found.current_epoch == expected.current_epoch
    for name in ("wait_count", "stopped_epoch", "best_score", "_check_on_train_epoch_end"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.stopping_reason.name == theirs.stopping_reason.name
    assert (ours.stopping_reason_message is None) == (theirs.stopping_reason_message is None)
    return theirs, ours, found.current_epoch


def test_checks_begin_later() -> None:
    def subclass(base: Any) -> type:
        class Warmup(base):
            def _should_skip_check(self, trainer: Any) -> bool:
                return super()._should_skip_check(trainer) or trainer.current_epoch < 3

        return Warmup

    *_, epochs = both(subclass, [1.0] * 8, patience=1)
    assert epochs == 5


@pytest.mark.parametrize("message", [None, "slow"])
def test_a_criterion_of_its_own(message: str | None) -> None:
    def subclass(base: Any) -> type:
        class Relative(base):
            before: Any = None

            def _evaluate_stopping_criteria(self, current: torch.Tensor) -> tuple[bool, str | None]:
                before, self.before = self.before, current
                return before is not None and bool(current > before * 0.5), message

        return Relative

    _, ours, epochs = both(subclass, [8.0, 4.0, 1.0, 0.75, 0.0], patience=100)
    assert epochs == 4
    assert ours.stopping_reason_message == message


def test_the_criterion_is_called_within_another() -> None:
    def subclass(base: Any) -> type:
        class Loud(base):
            def __init__(self, **arguments: Any) -> None:
                super().__init__(**arguments)
                self.told: list[tuple[float, bool, bool]] = []

            def _evaluate_stopping_criteria(self, current: torch.Tensor) -> tuple[bool, str | None]:
                stop, reason = super()._evaluate_stopping_criteria(current)
                self.told.append((float(current), stop, reason is None))
                return stop, reason

        return Loud

    theirs, ours, epochs = both(subclass, [3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 0.0], patience=2)
    assert ours.told == theirs.told
    assert epochs == 6


@pytest.mark.parametrize("at_epoch_end", [False, True])
def test_a_hook_of_its_own_calls_them(at_epoch_end: bool) -> None:
    def subclass(base: Any) -> type:
        class Own(base):
            def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
                if self._check_on_train_epoch_end or self._should_skip_check(trainer):
                    return
                self._run_early_stopping_check(trainer)

        return Own

    *_, epochs = both(subclass, [1.0] * 5, patience=2, check_on_train_epoch_end=at_epoch_end)
    assert epochs == 3


def test_a_metric_that_is_made_when_it_is_asked_for() -> None:
    def subclass(base: Any) -> type:
        class Makes(base):
            def _validate_condition_metric(self, logs: dict[str, torch.Tensor]) -> bool:
                return super()._validate_condition_metric({"v": torch.tensor(0.0)}) and logs["v"] < 5

            def _improvement_message(self, current: torch.Tensor) -> str:
                self.told = [*getattr(self, "told", []), float(current), self.monitor_op is torch.gt]
                return super()._improvement_message(current)

        return Makes

    theirs, ours, epochs = both(subclass, [7.0, 1.0, 2.0, 6.0, 2.0, 2.0, 2.0], patience=2, mode="max")
    assert ours.told == theirs.told == [1.0, True, 2.0, True]
    assert epochs == 6


def test_a_metric_that_nobody_logs() -> None:
    for library in (lightning, systolic):
        callback = library.pytorch.callbacks.EarlyStopping("v", strict=False, verbose=True)
        with pytest.warns(RuntimeWarning, match="v"):
            assert not callback._validate_condition_metric({"w": torch.tensor(0.0)})
        strict = library.pytorch.callbacks.EarlyStopping("v")
        with pytest.raises(RuntimeError, match="v"):
            strict._validate_condition_metric({"w": torch.tensor(0.0)})
