"""A program of a step, with what must hold for it to run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..capture import Guards
from ._program import Program


@dataclass
class Entry:
    """One program among those of a step function.

    Attributes:
        program: the program.
        guards: the conditions on objects under which it holds.
        signature: that of the arguments.
        numbers: the names of the numbers among these.
        pending: whether it has not run yet.
    """

    program: Program
    guards: Guards
    signature: Any
    numbers: tuple[str, ...]
    pending: bool = True
