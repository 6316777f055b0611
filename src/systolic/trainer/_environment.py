"""`PL_TRAINER_*`: defaults of the Trainer's arguments from the environment, as Lightning reads them."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..utilities._suggest import suggest

P = ParamSpec("P")
S = TypeVar("S")

PREFIX = "PL_TRAINER_"


def takes_defaults_from_environment(init: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Let an `__init__` take arguments that were not passed from variables such as `PL_TRAINER_MAX_EPOCHS=3`."""
    known = [name for name, p in inspect.signature(init).parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]

    @functools.wraps(init)
    def filled(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        init(self, *args, **{**environment_defaults(known), **kwargs})  # pyright: ignore[reportCallIssue]

    return filled


def environment_defaults(known: Iterable[str]) -> dict[str, Any]:
    """Arguments that the environment gives.

    Args:
        known: names of all arguments. A variable that names none of them gives a warning.

    Returns:
        Values by name: what is written as a Python literal (a number, None, a list) as that, all else as a string.

    Example:
        >>> os.environ["PL_TRAINER_DEVICES"] = "2"
        >>> environment_defaults(["devices", "max_epochs"])
        {'devices': 2}
        >>> del os.environ["PL_TRAINER_DEVICES"]
    """
    known = list(known)
    found: dict[str, Any] = {}
    for variable, text in os.environ.items():
        if not variable.startswith(PREFIX) or not text:
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name in known:
            found[name] = _value(text)
        else:
            warnings.warn(
                f"The environment variable {variable} is set, and Trainer has no argument `{name}`.{suggest(name, known)}",
                stacklevel=4,
            )
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
