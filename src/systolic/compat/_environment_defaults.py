"""`PL_TRAINER_*`: defaults of the Trainer's arguments from the environment, as Lightning reads them."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterable
from typing import Any

from ..utilities._suggest import suggest

PREFIX = "PL_TRAINER_"


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
                stacklevel=3,
            )
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
