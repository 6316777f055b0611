"""One thing that the doctor has to say."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is: an error keeps training from starting, a warning does not."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """A finding, and what to do about it.

    Attributes:
        level: how bad it is.
        text: what was found.
        advice: what to do; empty when there is nothing to do.
    """

    level: Level
    text: str
    advice: str = ""
