"""The configuration of a Trainer: frozen, shown as attributes, complete."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
from trainer.runs import Line, batches, trainer

import systolic as L
from systolic.trainer._config import TrainerConfig, TrainerSettings

# arguments that become something else: what a run gets in their place is checked where it is used
TRANSLATED = {
    "strategy",
    "precision",
    "logger",
    "enable_checkpointing",
    "enable_progress_bar",
    "enable_model_summary",
    "plugins",
    "num_nodes",
    "model_registry",
}
SHOWN_OTHERWISE = {
    **{"sharding": "strategy", "numerics": "precision", "profiler": "profiler", "loggers": "loggers"},
    "max_time": "callbacks",  # a Timer among them
    "callbacks": "callbacks",
    "slurm": "config",
    "environment": "config",
}


def test_every_argument_is_a_field_of_the_configuration() -> None:
    arguments = set(inspect.signature(L.Trainer.__init__).parameters) - {"self", "unknown"} - TRANSLATED
    assert arguments - {field.name for field in dataclasses.fields(TrainerConfig)} == set()


def test_every_field_is_an_attribute_of_the_trainer() -> None:
    run = trainer()
    for field in dataclasses.fields(TrainerConfig):
        assert hasattr(run, SHOWN_OTHERWISE.get(field.name, field.name)), field.name
        assert field.name in SHOWN_OTHERWISE or field.name in TrainerSettings.__annotations__, field.name


def test_the_configuration_cannot_be_changed_in_place() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        trainer().config.max_epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(("name", "value"), [("max_epochs", 3), ("limit_train_batches", 2), ("log_every_n_steps", 1)])
def test_an_attribute_that_is_set_before_fit_counts(name: str, value: Any) -> None:
    run = trainer()
    before = run.config
    setattr(run, name, value)
    assert getattr(run, name) == getattr(run.config, name) == value
    assert getattr(before, name) != value
    run.fit(Line(), batches(4))
    assert run.global_step == {"max_epochs": 12, "limit_train_batches": 2, "log_every_n_steps": 4}[name]


def test_an_attribute_that_a_callback_sets_counts_in_the_run_that_is_under_way() -> None:
    class Longer(L.Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            trainer.max_epochs = 3

    run = trainer(callbacks=[Longer()])
    run.fit(Line(), batches(2))
    assert (run.current_epoch, run.max_epochs) == (3, 3)


def test_lists_that_are_changed_in_place_are_those_of_the_next_run() -> None:
    seen: list[str] = []

    class Seen(L.Callback):
        def on_fit_start(self, trainer: Any, module: Any) -> None:
            seen.append("fit")

    run = trainer()
    run.callbacks.append(Seen())
    run.fit(Line(), batches(1))
    assert seen == ["fit"]
