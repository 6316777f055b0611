"""The numbers of a step that vary from the start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Symbols:
    """Epoch and step inside of a step, where they are numbers of the program."""

    epoch: Any
    global_step: Any
    batch_idx: Any
