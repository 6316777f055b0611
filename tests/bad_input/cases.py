"""One bad input each: what is given, what it is given to, and the answer that is expected."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import systolic as L
from systolic.exceptions import MisconfigurationException

Answer = type[BaseException]
"""The class of the error; a class of warnings where the input is taken with one."""


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        given: the input, as the page shows it.
        tried: gives it to systolic.
        answer: class of the error or the warning.
        says: a part of its text.
        long: whether a program has to be compiled for it.
    """

    given: str
    tried: Callable[[], object]
    answer: Answer
    says: str
    long: bool = False


def answered(case: Case) -> tuple[Answer | None, str]:
    """Class and text of what came; None where the input was taken without a word."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            case.tried()
        except BaseException as error:  # the table holds SystemExit and KeyboardInterrupt too
            if not issubclass(case.answer, Warning):
                return type(error), text_of(error)
            if not any(case.says in str(one.message) for one in told):  # what was warned of may end in an error
                raise
    if not issubclass(case.answer, Warning):
        return None, "; ".join(str(one.message) for one in told)
    fitting = [one for one in told if case.says in str(one.message)]
    return (fitting[0].category, str(fitting[0].message)) if fitting else (None, "; ".join(str(t.message) for t in told))


def text_of(error: BaseException) -> str:
    """Text of an error with its notes, and for an exit what was printed before it."""
    return "".join(traceback.format_exception_only(error))


def trainer(**options: Any) -> L.Trainer:
    """A silent Trainer on one simulated core; nothing of it touches the disk."""
    quiet: dict[str, Any] = {
        "accelerator": "cpu", "devices": 1, "max_epochs": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    return L.Trainer(**{**quiet, **options})


def of_trainer(says: str, answer: Answer = MisconfigurationException, **options: Any) -> Case:
    """A bad argument of the Trainer."""
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in options.items())
    return Case(f"Trainer({shown})", lambda: trainer(**options), answer, says)


def _shown(value: object) -> str:
    if isinstance(value, type):
        return value.__name__
    return f"{type(value).__name__}()" if " object at " in repr(value) else repr(value)
