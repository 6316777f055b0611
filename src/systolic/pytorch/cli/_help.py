"""Help texts from docstrings."""

from __future__ import annotations

import inspect


def short_description(function: object) -> str | None:
    """The first paragraph of a docstring, in one line; None without a docstring."""
    text = inspect.getdoc(function)
    return " ".join(text.split("\n\n", 1)[0].split()) if text else None
