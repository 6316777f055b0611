"""An epoch of a map-style dataset from a batch in its middle: the order is drawn again, what is skipped is not loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader

_END = object()


class Skip:
    """How many batches an epoch leaves out.

    Attributes:
        left: how many are still to be left out; a loader that ends before has the others left out when it starts again.
        done: called once, when the next batch is the first that is wanted.
    """

    def __init__(self, batches: int, done: Callable[[], None]) -> None:
        self.left = batches
        self.done: Callable[[], None] | None = done
        self._begun = False

    @property
    def is_under_way(self) -> bool:
        """Whether a pass over the loader has begun, and did not come to the first batch that is wanted."""
        return self._begun and self.done is not None

    def over(self, indices: Iterator[Any]) -> Iterator[Any]:
        """The indices after those that are left out."""
        self._begun = True
        while self.left:
            if next(indices, _END) is _END:
                return
            self.left -= 1
        done, self.done = self.done, None
        if done is not None:
            done()
        yield from indices


def later_pass(start: Callable[[], Iterator[Any]], skip: Skip) -> Iterator[Any]:
    """A pass over a loader that starts again because a batch is wanted: passes that are left out as a whole are no end of it.

    The first pass may be empty: the loader has ended there once, which counts.

    Args:
        start: starts a pass.
        skip: what is left out.
    """
    while True:
        pending, batch = skip.done is not None, _END
        for batch in start():
            yield batch
        if batch is not _END or not pending:
            return


class SkippingSampler:
    """A sampler that leaves out the beginning of an epoch, with the random draws of a whole one.

    Args:
        sampler: a sampler or batch sampler.

    Attributes:
        skip: what to leave out; None for nothing.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.skip: Skip | None = None

    def __iter__(self) -> Iterator[Any]:
        indices = iter(self.sampler)
        return indices if self.skip is None else self.skip.over(indices)

    def __len__(self) -> int:
        return len(self.sampler)


def skipping(loader: DataLoader[Any]) -> tuple[DataLoader[Any], SkippingSampler]:
    """A shallow copy of a loader, and its sampler, through which batches can be left out."""
    clone = copy.copy(loader)
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = SkippingSampler(getattr(loader, name))
    clone.__dict__[name] = sampler  # a DataLoader refuses another sampler by assignment
    clone.__dict__["_iterator"] = None  # workers of the copy are its own
    return clone, sampler
