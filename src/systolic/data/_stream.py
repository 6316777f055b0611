"""Streams, read by several processes: loaders of iterable datasets, whose samples have no places that could be shared out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate

from ..runtime import to_jax_array
from ._batch import flatten_batch
from ._limits import num_batches
from ._reinstantiate import rebuild_loader
from ._share import Processes


@dataclass
class StreamBatch:
    """A batch of a stream, or one process's part of it.

    Attributes:
        batch: as the loader gives it.
        rows: of samples in it.
        count: of how many processes' parts the global batch is put together; 1 where each process holds the whole.
        digest: of the samples of the whole batch, in the first one: the stream must be the same in all processes.
    """

    batch: Any
    rows: int
    count: int
    digest: str = ""

    def parts(self, shape: Sequence[int]) -> int:
        """Of how many processes' arrays the tensor of a batch is put together.

        Args:
            shape: the tensor's in this process.
        """
        return self.count if len(shape) > 0 and shape[0] == self.rows else 1


class SharedCollate:
    """Collates this process's rows of each global batch; what does not divide over all devices it collates whole.

    Args:
        collate: the loader's.
        processes: who shares the stream.
        own: the stream is this process's own, and its batches are its parts.
    """

    def __init__(self, collate: Callable[[Any], Any], processes: Processes, own: bool) -> None:
        self.collate, self.processes, self.own = collate, processes, own
        self._told = False

    def __call__(self, samples: list[Any]) -> StreamBatch:
        """Collate."""
        index, count, devices = self.processes.index, self.processes.count, self.processes.devices
        if self.own:
            divides = len(samples) % (devices // count) == 0
            return StreamBatch(self.collate(samples), len(samples), count if divides else 1)
        digest, self._told = "" if self._told else digest_of(samples), True
        if len(samples) % devices:
            return StreamBatch(self.collate(samples), len(samples), 1, digest)
        rows = len(samples) // count
        return StreamBatch(self.collate(samples[index * rows : (index + 1) * rows]), rows, count, digest)


class CutCollate:
    """Collates this process's rows of each global batch, for processes that do not meet; None where it has no row.

    Args:
        collate: the loader's.
        processes: who shares the stream.
    """

    def __init__(self, collate: Callable[[Any], Any], processes: Processes) -> None:
        self.collate, self.processes = collate, processes

    def __call__(self, samples: list[Any]) -> Any:
        """Collate."""
        rows = cut(samples, self.processes)
        return self.collate(rows) if rows else None


class CutBatchSampler(BatchSampler):
    """The indices of each global batch that one of several processes takes.

    Args:
        batches: the global ones.
        processes: who shares them.
    """

    def __init__(self, batches: Any, processes: Processes) -> None:
        self.batch_sampler, self.processes = batches, processes
        self.drop_last = getattr(batches, "drop_last", False) is True

    def __iter__(self) -> Iterator[list[Any]]:
        return (rows for batch in self.batch_sampler if (rows := cut(list(batch), self.processes)))

    def __len__(self) -> int:
        return len(self.batch_sampler)


class PartLoader:
    """The part of a loader's batches that one of several processes takes: those of a stream, or every so many.

    Args:
        loader: what to read.
        processes: who shares it.
        deals: whether whole batches are dealt out; else the loader leaves out what is not this process's.
    """

    def __init__(self, loader: Any, processes: Processes, deals: bool) -> None:
        self.loader, self.processes, self.deals = loader, processes, deals

    def __iter__(self) -> Iterator[Any]:
        if self.deals:
            return islice(self.loader, self.processes.index, None, self.processes.count)
        return (batch for batch in self.loader if batch is not None)

    def __len__(self) -> int:
        batches = len(self.loader)
        return -(-(batches - self.processes.index) // self.processes.count) if self.deals else batches


def share_stream(loader: object, processes: Processes, own: bool) -> Any:
    """A loader of an iterable dataset that makes of each global batch what lies on this process's devices.

    Every process reads the same samples in the same order, and of every global batch it takes its rows; so the global batches
    are those of one process. Others than loaders that collate samples by default come back as they are: each process then
    reads whole batches.

    Args:
        loader: of global batches.
        processes: who shares it.
        own: each process has a stream of its own (`use_distributed_sampler=False`): its batches are its parts.
    """
    if processes.count == 1 or not _collates_stream(loader) or (not own and loader.collate_fn is not default_collate):
        return loader
    return rebuild_loader(
        loader,
        batch_size=loader.batch_size,
        drop_last=loader.drop_last,
        collate_fn=SharedCollate(loader.collate_fn, processes, own),
    )


def part_of(loader: Any, processes: Processes) -> Any:
    """The part of a loader that a process takes which does not meet the others, as in prediction.

    Of every global batch it takes its rows, as near to equally many as can be; of batches that are no lists of samples, every
    so many.

    Args:
        loader: of global batches.
        processes: who shares it.
    """
    if _collates_stream(loader):
        kept = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        return PartLoader(rebuild_loader(loader, collate_fn=CutCollate(loader.collate_fn, processes), **kept), processes, False)
    if isinstance(loader, DataLoader) and loader.batch_sampler is not None:
        return rebuild_loader(loader, batch_sampler=CutBatchSampler(loader.batch_sampler, processes))
    return PartLoader(loader, processes, True)


def has_agreed_length(loader: object) -> bool:
    """Whether its number of batches was compared before it is read, and cannot turn out to be another one."""
    return isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset) and num_batches(loader) >= 0


def cut(samples: list[Any], processes: Processes) -> list[Any]:
    """One process's part of some samples, as near to equally many as can be."""
    index, count = processes.index, processes.count
    return samples[len(samples) * index // count : len(samples) * (index + 1) // count]


def digest_of(batch: object) -> str:
    """A short digest of the tensors and arrays in a batch."""
    digest = hashlib.sha1()
    for leaf in flatten_batch(batch)[0]:
        array = to_jax_array(leaf.detach()) if isinstance(leaf, torch.Tensor) else leaf
        digest.update(array.tobytes())
    return digest.hexdigest()[:12]


def _collates_stream(loader: object) -> TypeGuard[DataLoader[Any]]:
    return isinstance(loader, DataLoader) and isinstance(loader.dataset, IterableDataset) and loader.batch_size is not None
