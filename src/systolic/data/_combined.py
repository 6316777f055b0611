"""Several loaders as one: Lightning's `CombinedLoader` and its modes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias, get_args

from ..exceptions import MisconfigurationException
from ..utilities._containers import open_container
from ._batch import BatchSpec, describe
from ._fast_fetch import iterate
from ._limits import num_batches

CombinedMode: TypeAlias = Literal["min_size", "max_size_cycle", "max_size", "sequential"]
CombinedBatch: TypeAlias = tuple[Any, int, int]  # batch, batch_idx, dataloader_idx
Limit: TypeAlias = int | float


class CombinedLoader:
    """Combines loaders, nested in any way of dicts, lists, tuples and dataclasses.

    Iterating gives `(batch, batch_idx, dataloader_idx)`. In the first three modes a batch has the structure of
    `iterables` with each loader's batch in its place, and dataloader_idx is 0; in sequential mode it is one loader's
    batch, and batch_idx starts at 0 for each loader.

    Args:
        iterables: a loader or a collection of loaders.
        mode: `min_size` stops when the shortest loader is done; `max_size_cycle` when the longest is, starting the
            others again; `max_size` when the longest is, with None in place of the others; `sequential` goes through
            one loader after the other.
    """

    def __init__(self, iterables: object, mode: CombinedMode = "min_size") -> None:
        if mode not in _LENGTHS:
            raise ValueError(f"Unsupported mode {mode!r} of CombinedLoader: expected one of {list(get_args(CombinedMode))}.")
        self._iterables = iterables
        self._mode: CombinedMode = mode
        self._flattened: list[Any] = []
        tree = describe(iterables, self._flattened, _is_loader)
        self._spec = BatchSpec(tree, len(self._flattened))
        self._limits: list[Limit] | None = None

    @property
    def iterables(self) -> Any:
        """The loaders in the structure they were given in."""
        return self._iterables

    @property
    def mode(self) -> CombinedMode:
        """How the loaders are combined."""
        return self._mode

    @property
    def flattened(self) -> list[Any]:
        """The loaders as a flat list; assigning one replaces them in `iterables` too."""
        return self._flattened

    @flattened.setter
    def flattened(self, loaders: list[Any]) -> None:
        if len(loaders) != len(self._flattened):
            raise ValueError(f"Mismatch in flattened length ({len(loaders)}) and existing length ({len(self._flattened)}).")
        self._flattened = list(loaders)
        self._iterables = self._spec.unflatten(self._flattened)

    @property
    def limits(self) -> list[Limit] | None:
        """The most batches to take from each loader; a single number sets it for all. Without effect if None.

        In sequential mode iteration stops at the limit. In the other modes the limits count in `len`, which is how
        far a loop should go, as in Lightning.
        """
        return self._limits

    @limits.setter
    def limits(self, limits: Limit | list[Limit] | None) -> None:
        if isinstance(limits, int | float):
            limits = [limits] * len(self._flattened)
        if limits is not None and len(limits) != len(self._flattened):
            raise ValueError(f"Expected a limit for each of {len(self._flattened)} loaders, received {len(limits)}.")
        self._limits = limits

    def __iter__(self) -> Iterator[CombinedBatch]:
        # Iterators are made here, not at the first batch: a DataLoader draws random numbers when its iterator is made.
        if self._mode == "sequential":
            first = iterate(self._flattened[0]) if self._flattened and self._takes_from(0) else iter(())
            return _sequential(self._flattened, self._limits, first)
        batches = _JOINT[self._mode](self._flattened, [iterate(loader) for loader in self._flattened])
        unflatten = self._spec.unflatten
        return ((unflatten(batch), batch_idx, 0) for batch_idx, batch in enumerate(batches))

    def __len__(self) -> int:
        """The number of batches; a TypeError when a loader that decides does not know its own."""
        length = self.num_batches()
        if length == math.inf:
            raise TypeError(f"A CombinedLoader in mode {self._mode!r} has no length: a loader in it has none.")
        return int(length)

    def num_batches(self) -> int | float:
        """The number of batches within the limits, infinity when unknown."""
        lengths = [num_batches(loader) for loader in self._flattened]
        if self._limits is not None:
            lengths = [min(length, limit) for length, limit in zip(lengths, self._limits, strict=True)]
        return _LENGTHS[self._mode](lengths) if lengths else 0

    def _takes_from(self, index: int) -> bool:
        return self._limits is None or self._limits[index] > 0


def _is_loader(value: object) -> bool:
    """Whether a value is a loader itself rather than a collection: a list of numbers is data."""
    # A dataclass that can be iterated is somebody's loader with its settings as fields.
    if dataclasses.is_dataclass(value) and hasattr(value, "__iter__") and not isinstance(value, dict):
        return True
    if isinstance(value, list | tuple):
        return all(isinstance(child, int | float | str) for child in value)
    return open_container(value) is None


def _min_size(loaders: list[Any], iterators: list[Iterator[Any]]) -> Iterator[list[Any]]:
    if not iterators:
        return
    while True:
        batch = []
        for iterator in iterators:
            try:
                batch.append(next(iterator))
            except StopIteration:
                return
        yield batch


def _max_size_cycle(loaders: list[Any], iterators: list[Iterator[Any]]) -> Iterator[list[Any]]:
    finished = [False] * len(iterators)
    while not all(finished):
        batch = []
        for index, loader in enumerate(loaders):
            try:
                batch.append(next(iterators[index]))
            except StopIteration:
                finished[index] = True
                if all(finished):
                    return
                iterators[index] = iterate(loader)
                batch.append(_first_again(iterators[index], loader))
        yield batch


def _first_again(iterator: Iterator[Any], loader: object) -> Any:
    for batch in iterator:
        return batch
    raise MisconfigurationException(
        f"CombinedLoader(mode='max_size_cycle') cannot start a {type(loader).__name__} again: it yields no batch the "
        "second time (an empty loader, or a generator, which can be read once). Pass an iterable that can be read "
        "again, or use mode='max_size' or 'min_size'."
    )


_DONE = object()


def _max_size(loaders: list[Any], iterators: list[Iterator[Any]]) -> Iterator[list[Any]]:
    while True:
        batch = [next(iterator, _DONE) for iterator in iterators]
        if all(part is _DONE for part in batch):
            return
        yield [None if part is _DONE else part for part in batch]


def _sequential(loaders: list[Any], limits: list[Limit] | None, first: Iterator[Any]) -> Iterator[CombinedBatch]:
    # One iterator at a time: the workers of a loader start when its turn comes.
    for dataloader_idx, loader in enumerate(loaders):
        limit = math.inf if limits is None else limits[dataloader_idx]
        if limit <= 0:
            continue
        iterator = first if dataloader_idx == 0 else iterate(loader)
        for batch_idx, batch in enumerate(iterator):
            yield batch, batch_idx, dataloader_idx
            if batch_idx + 1 >= limit:
                break


_LENGTHS: dict[str, Callable[[list[int | float]], int | float]] = {
    "min_size": min,
    "max_size_cycle": max,
    "max_size": max,
    "sequential": sum,
}
_JOINT: dict[str, Callable[[list[Any], list[Iterator[Any]]], Iterator[list[Any]]]] = {
    "min_size": _min_size,
    "max_size_cycle": _max_size_cycle,
    "max_size": _max_size,
}


class CombinedBatches:
    """A combined loader that yields batches without their numbers."""

    def __init__(self, combined: CombinedLoader) -> None:
        self.combined = combined

    @property
    def flattened(self) -> list[Any]:
        """The loaders, for whoever looks for their samplers."""
        return self.combined.flattened

    def __len__(self) -> int:
        return len(self.combined)

    def __iter__(self) -> Iterator[Any]:
        for batch, _, _ in self.combined:
            yield batch
