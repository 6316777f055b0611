"""`PL_TRAINER_*`: the environment gives what the call leaves out, as in Lightning."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
from trainer.runs import trainer

import systolic as L

SETTINGS = {
    "PL_TRAINER_MAX_STEPS": "7",
    "PL_TRAINER_LOGGER": "False",
    "PL_TRAINER_MIN_EPOCHS": "",
    "PL_TRAINER_ACCELERATOR": "cpu",
}
SEEN = ("max_steps", "logger", "min_epochs", "gradient_clip_val", "gradient_clip_algorithm")
PLAIN: dict[str, Any] = {"enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}


@pytest.mark.parametrize("given", [{}, {"max_steps": 5, "logger": False}, {"gradient_clip_val": 0.5}], ids=str)
def test_what_is_not_passed_comes_from_the_environment_as_in_lightning(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SETTINGS, "PL_TRAINER_GRADIENT_CLIP_ALGORITHM": "value"}.items():
        monkeypatch.setenv(name, value)
    theirs, ours = pl.Trainer(**PLAIN, **given), L.Trainer(**PLAIN, **given)
    assert {name: getattr(ours, name) for name in SEEN} == {name: getattr(theirs, name) for name in SEEN}


def test_what_is_passed_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_ACCUMULATE_GRAD_BATCHES", "3")
    assert trainer().accumulate_grad_batches == 3
    assert trainer(accumulate_grad_batches=2).accumulate_grad_batches == 2


def test_a_value_from_the_environment_is_checked_like_one_that_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_EPOCHS", "many")
    with pytest.raises(L.MisconfigurationException, match="`max_epochs`.*Received: 'many'"):
        L.Trainer(logger=False)


def test_a_variable_that_names_no_argument_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_TRAINER_MAX_EPOCH", "3")
    with pytest.warns(UserWarning, match="PL_TRAINER_MAX_EPOCH is set.*Did you mean 'max_epochs'"):
        trainer()
