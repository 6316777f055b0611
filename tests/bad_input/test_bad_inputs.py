"""Every row of the tables gets its answer: an error or a warning of the expected class that says what is expected."""

from __future__ import annotations

import inspect
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import systolic as L
from bad_input import TABLES
from bad_input.cases import Case, answered, trainer

ROWS = [(group, case) for group, cases in TABLES.items() for case in cases]


def _parameters() -> list[object]:
    marks = {True: [pytest.mark.tables], False: []}
    return [pytest.param(case, id=f"{group}-{n}", marks=marks[case.long]) for n, (group, case) in enumerate(ROWS)]


@pytest.mark.parametrize("case", _parameters())
def test_bad_input(case: Case) -> None:
    with warnings.catch_warnings():
        answer, text = answered(case)
    assert answer is not None, f"{case.given} is taken without a word. {text}"
    assert issubclass(answer, case.answer), f"{case.given}: {answer.__name__}: {text}"
    assert case.says in text, f"{case.given}: {answer.__name__}: {text}"


def test_rows_are_told_apart() -> None:
    given = [(group, case.given) for group, case in ROWS]
    assert len(set(given)) == len(given), sorted(one for one in given if given.count(one) > 1)


def test_lightnings_arguments_are_no_typos() -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    names = set(inspect.signature(lightning.Trainer.__init__).parameters) - {"self"}
    ours = set(inspect.signature(L.Trainer.__init__).parameters)
    assert names <= ours, names - ours


@pytest.mark.parametrize(
    "options",
    [
        {"enable_progress_bar": 0}, {"detect_anomaly": np.bool_(False)}, {"deterministic": "warn"}, {"benchmark": None},
        {"fast_dev_run": 0}, {"max_time": timedelta(0)}, {"gradient_clip_val": 0}, {"default_root_dir": Path("runs")},
        {"overfit_batches": 0.0}, {"reload_dataloaders_every_n_epochs": 1}, {"val_check_interval": {"hours": 1}},
        {"limit_val_batches": 0}, {"num_sanity_val_steps": -1}, {"min_steps": None},
    ],
    ids=lambda options: next(iter(options)),
)  # fmt: skip
def test_valid_arguments_are_taken(options: dict[str, Any]) -> None:
    trainer(**options)
