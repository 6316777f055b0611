"""Generated pages: written, or compared with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def write_or_check(path: Path, text: str, arguments: Sequence[str]) -> int:
    """Write a page; with `--check` among the arguments only say whether it is current.

    Returns:
        The exit status: 1 where a page that is checked is not current.
    """
    if "--check" in arguments:
        return 0 if path.exists() and path.read_text() == text else 1
    path.write_text(text)
    return 0
