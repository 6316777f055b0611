"""The part of each global batch that one of several processes reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, default_collate

from ._limits import has_len
from ._reinstantiate import rebuild_loader


@dataclass(frozen=True)
class Processes:
    """Processes that share global batches.

    Attributes:
        index: which one this is, from 0.
        count: how many there are.
        devices: the devices of all of them.
    """

    index: int
    count: int
    devices: int


class Sharing(Protocol):
    """Knows how several processes share a batch."""

    def parts(self, shape: Sequence[int]) -> int:
        """Of how many processes' arrays the tensor of a batch is put together; 1 where each holds the whole.

        Args:
            shape: the tensor's in this process.
        """
        ...


class SharedBatchSampler(Sampler[list[Any]]):
    """The rows of each global batch that lie on this process's devices.

    A batch whose rows do not divide over all devices goes to each of them whole, so every process reads all of it.

    Args:
        batches: the global batches.
        processes: who shares them.
    """

    def __init__(self, batches: BatchSampler, processes: Processes) -> None:
        self.batch_sampler = batches
        self.processes = processes
        rest = 0 if batches.drop_last else _length(batches) % batches.batch_size
        divided = [size for size in (batches.batch_size, rest) if size and size % processes.devices == 0]
        self._own = {size // processes.count for size in divided}
        self._undivided = rest if rest % processes.devices else 0

    @property
    def tells_apart(self) -> bool:
        """Whether parts and whole batches can be told by their size."""
        return self._undivided not in self._own

    def parts(self, shape: Sequence[int]) -> int:
        """Of how many processes' arrays the tensor of a batch is put together; 1 where each holds the whole.

        Args:
            shape: the tensor's in this process.
        """
        return self.processes.count if len(shape) > 0 and shape[0] in self._own else 1

    def __iter__(self) -> Iterator[list[Any]]:
        index, count, devices = self.processes.index, self.processes.count, self.processes.devices
        for batch in self.batch_sampler:
            own = len(batch) // count
            yield batch if len(batch) % devices else batch[index * own : (index + 1) * own]

    def __len__(self) -> int:
        return len(self.batch_sampler)


def share_loader(loader: object, processes: Processes) -> Any:
    """A loader of which each process reads its part of every batch; the loader itself where only the whole will do.

    That is so where a part of a batch is not made from a part of its samples: a `collate_fn` may pad to the longest sample,
    a batch sampler may have made its choice. Then every process reads the global batch. Iterable datasets: `share_stream`.

    Args:
        loader: of global batches.
        processes: who shares it.
    """
    if processes.count == 1 or not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    batches = loader.batch_sampler
    if type(batches) is not BatchSampler or loader.collate_fn is not default_collate or not has_len(batches.sampler):
        return loader
    shared = SharedBatchSampler(batches, processes)
    return rebuild_loader(loader, batch_sampler=shared) if shared.tells_apart else loader


def sharing_of(loader: object) -> SharedBatchSampler | None:
    """How a loader's batches are shared; None where every process reads them whole."""
    sampler = loader.batch_sampler if isinstance(loader, DataLoader) else None
    return sampler if isinstance(sampler, SharedBatchSampler) else None


def _length(batches: BatchSampler) -> int:
    return len(batches.sampler)  # type: ignore[arg-type]  # asked before
