"""Joining batches that are collated already into one larger batch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import torch

from ..exceptions import MisconfigurationException
from ..utilities._containers import Opened, open_container
from ._batch import flatten_batch


class SizedIterable(Protocol):
    """A loader, as far as it is read from here."""

    def __iter__(self) -> Iterator[Any]:
        """Its batches."""
        ...

    def __len__(self) -> int:
        """How many."""
        ...


class MergedLoader:
    """Yields consecutive batches of a loader as one.

    Args:
        loader: the loader of small batches.
        factor: how many of them make one; the last one may be made of fewer.
    """

    def __init__(self, loader: SizedIterable, factor: int) -> None:
        self.loader = loader
        self.factor = factor

    @property
    def dataset(self) -> Any:
        """The dataset of the loader underneath."""
        return getattr(self.loader, "dataset", None)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        while group := list(islice(batches, self.factor)):
            yield concatenate_batches(group)

    def __len__(self) -> int:
        return -(-len(self.loader) // self.factor)


def concatenate_batches(batches: list[Any]) -> Any:
    """One batch out of several: tensors and arrays joined along the first dimension, lists of samples in a row.

    Values that are no tensors (numbers, strings, None, objects) must be equal in all of them.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    if isinstance(first, torch.Tensor):
        return torch.cat(batches) if first.ndim else torch.stack(batches)
    if isinstance(first, np.ndarray):
        return np.concatenate(batches) if first.ndim else np.stack(batches)
    opened = [part for part in map(open_container, batches) if part is not None]
    if len(opened) != len(batches):
        return _common_value(batches)
    if _are_sample_lists(batches):
        return type(first)(chain.from_iterable(batches))
    return _concatenate_containers(batches, opened)


def _concatenate_containers(batches: list[Any], opened: list[Opened]) -> Any:
    first = opened[0]
    if any(
        type(batch) is not type(batches[0]) or part.context != first.context
        for batch, part in zip(batches, opened, strict=True)
    ):
        raise _not_mergeable(batches, "differ in structure")
    columns = zip(*(part.children for part in opened), strict=True)
    return first.rebuild([concatenate_batches(list(column)) for column in columns])


def _are_sample_lists(batches: list[Any]) -> bool:
    """Whether the list is one entry a sample (names, or tensors in varying number), not one entry a field."""
    if type(batches[0]) not in (list, tuple) or any(type(batch) is not type(batches[0]) for batch in batches):
        return False
    return len({len(batch) for batch in batches}) > 1 or not any(flatten_batch(batch)[0] for batch in batches)


def _common_value(values: list[Any]) -> Any:
    first = values[0]
    if all(value is first or (type(value) is type(first) and value == first) for value in values[1:]):
        return first
    raise _not_mergeable(values, "differ")


def _not_mergeable(values: list[Any], problem: str) -> MisconfigurationException:
    return MisconfigurationException(
        f"{len(values)} consecutive batches of this loader cannot be joined into one batch for all cores: expected "
        f"tensors, arrays or equal values, received parts of type {type(values[0]).__name__} that {problem}: "
        f"{values[0]!r:.80} and {values[1]!r:.80}. Let the loader yield the batch for all cores and pass "
        "`Trainer(use_distributed_sampler=False)`."
    )
