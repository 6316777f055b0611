"""Checks of callbacks' arguments."""

from __future__ import annotations

import math
import os
from datetime import timedelta
from string import Formatter
from typing import Any

from ..exceptions import MisconfigurationException


def require_integer(owner: str, name: str, value: object, minimum: int) -> None:
    """Refuse what is no integer of at least `minimum`.

    Args:
        owner: the callback's class.
        name: the argument.
        value: what was given.
        minimum: the smallest that is possible.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise MisconfigurationException(f"{owner}({name}={value!r}): Must be >= {minimum}, and an integer.")


def require_number(owner: str, name: str, value: Any) -> None:
    """Refuse what is no number, and NaN."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)  # a tensor with one element is one
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise MisconfigurationException(f"{owner}({name}={value!r}): expected a number.")


def require_text(owner: str, name: str, value: object, example: str) -> None:
    """Refuse what is no text."""
    if not isinstance(value, str):
        raise MisconfigurationException(f"{owner}({name}={value!r}): expected text, such as {example!r}.")


def require_path(owner: str, name: str, value: object) -> None:
    """Refuse what is neither None nor a path."""
    if value is not None and not isinstance(value, str | os.PathLike):
        raise MisconfigurationException(
            f"{owner}({name}={value!r}): expected a path or a URL, as text or as a pathlib.Path, or None."
        )


def require_template(owner: str, value: object) -> None:
    """Refuse what cannot be a template of file names."""
    if value is None:
        return
    require_text(owner, "filename", value, "{epoch}-{val_loss:.2f}")
    try:
        list(Formatter().parse(str(value)))
    except ValueError as error:
        raise MisconfigurationException(
            f"{owner}(filename={value!r}): {error}. Expected names of metrics in braces, such as '{{epoch}}-{{val_loss:.2f}}'."
        ) from None


def require_interval(owner: str, name: str, value: object) -> None:
    """Refuse what is neither None nor a duration."""
    if value is not None and not (isinstance(value, timedelta) and value >= timedelta(0)):
        raise MisconfigurationException(
            f"{owner}({name}={value!r}): expected None, or a timedelta of nothing or more, such as timedelta(minutes=30)."
        )
