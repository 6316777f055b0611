"""Progress of a loop by Lightning's names, which callbacks written for it read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class LoopCounts:
    """How many batches, epochs or steps have come how far.

    Attributes:
        ready: those that were read.
        started: those whose work has begun.
        processed: those whose work is done.
        completed: those whose hooks are over, too.
    """

    ready: int = 0
    started: int = 0
    processed: int = 0
    completed: int = 0


@dataclass(frozen=True)
class LoopProgress:
    """Counts of a loop.

    Attributes:
        total: since the beginning of training.
        current: since the loop was entered last.
        is_last_batch: whether the last batch is reached; False for what is no batch.
    """

    total: LoopCounts
    current: LoopCounts
    is_last_batch: bool = False

    @classmethod
    def of(cls, account: dict[str, Any]) -> Self:
        """Make it of an entry of a checkpoint's `loops`."""
        total, current = LoopCounts(**account["total"]), LoopCounts(**account["current"])
        return cls(total, current, account.get("is_last_batch", False))
