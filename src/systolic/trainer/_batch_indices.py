"""Indices of the dataset's samples that a batch holds, for writers of predictions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..callbacks import BasePredictionWriter, Callback
from ..compat import lightnings
from ..data import rebuild_loader
from ..exceptions import PossibleUserWarning


def prediction_writers(callbacks: list[Callback]) -> list[Any]:
    """The writers of predictions, ours and Lightning's, among callbacks."""
    return [
        callback
        for callback in callbacks
        if isinstance(callback, BasePredictionWriter) or lightnings(type(callback), "BasePredictionWriter") is not None
    ]


class NotingIndices:
    """A loader like another one that notes the indices of its batches.

    Args:
        loader: the loader; where it reads no samples by index it is taken as it is, and nothing is noted.

    Attributes:
        loader: what to read from.
        batches: the indices of every batch so far; those that were fetched ahead are there already.
    """

    def __init__(self, loader: Any) -> None:
        self.loader, self.batches = loader, list[list[int]]()
        indexed = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
        sampler = loader.batch_sampler if indexed else None
        if sampler is None:
            warnings.warn(
                f"The prediction writer gets no indices: the {type(loader).__name__} reads no samples by index.",
                PossibleUserWarning,
                stacklevel=2,
            )
        else:
            self.loader = rebuild_loader(loader, batch_sampler=_NotingSampler(sampler, self.batches))


class _NotingSampler(BatchSampler):
    def __init__(self, sampler: Any, batches: list[list[int]]) -> None:
        self._sampler: Iterable[list[int]] = sampler
        self._batches = batches
        self._length = len(sampler)

    def __iter__(self) -> Iterator[list[int]]:
        for indices in self._sampler:
            self._batches.append(list(indices))
            yield indices

    def __len__(self) -> int:
        return self._length
