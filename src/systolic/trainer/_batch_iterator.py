"""`dataloader_iter`: how a step that asks for the loader's iterator gets its batch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from ..exceptions import MisconfigurationException


class BatchIterator(Iterator[tuple[Any, Any, int]]):
    """The one batch of a step, behind the face of Lightning's `dataloader_iter`.

    A step is one program, whose batch is fed before it starts: it can take that batch, and no second one.

    Args:
        batch: the batch.
        batch_idx: its number.
        dataloader_idx: the loader that it is from.
        step: name of the step, for messages.

    Attributes:
        fetched: how many batches the step has taken.
    """

    def __init__(self, batch: Any, batch_idx: Any, dataloader_idx: int, step: str) -> None:
        self._item, self._step, self.fetched = (batch, batch_idx, dataloader_idx), step, 0

    def __next__(self) -> tuple[Any, Any, int]:
        """The batch, its number, and its loader's number.

        Raises:
            MisconfigurationException: the batch has been taken.
        """
        if self.fetched:
            raise MisconfigurationException(
                f"`{self._step}` asked `dataloader_iter` for a second batch. Expected: one `next(dataloader_iter)` a step, "
                "which is one program fed before it starts. Received: two. To work on several batches in a step, let the "
                "loader put them together: a larger `batch_size`, or a `collate_fn` or dataset that gives them as a list."
            )
        self.fetched += 1
        return self._item

    def require_taken(self) -> None:
        """Refuse a step that did not look at its batch.

        Raises:
            MisconfigurationException: the step never called `next`.
        """
        if not self.fetched:
            raise MisconfigurationException(
                f"`{self._step}` asks for `dataloader_iter` and took no batch from it. Expected: one "
                "`batch, batch_idx, dataloader_idx = next(dataloader_iter)` in each step."
            )


def asks_for_iterator(step: Callable[..., Any]) -> bool:
    """Whether a step wants `dataloader_iter` in place of a batch."""
    return "dataloader_iter" in inspect.signature(step).parameters
