"""States of a DataLoader's workers after each batch: their random generators, and the state of their dataset."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeGuard

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..utilities._torch_internals import WorkerInfo, _generate_state
from ..utilities.random_state import HostRandomState
from ..utilities.seed import pl_worker_init_function


class Stateful(Protocol):
    """A loader, sampler or dataset of the user's that knows where it is."""

    def state_dict(self) -> Any:
        """Its current position."""
        ...

    def load_state_dict(self, state_dict: Any) -> Any:
        """Go on from there."""
        ...


def is_stateful(loader: object) -> TypeGuard[Stateful]:
    """Whether a loader, sampler or dataset knows where it is."""
    # isinstance of a protocol takes a hundred times as long, and every epoch asks for every sampler
    return callable(getattr(loader, "state_dict", None)) and callable(getattr(loader, "load_state_dict", None))


def seed_workers(loader: DataLoader[Any], process: int) -> None:
    """After `seed_everything(..., workers=True)`, have the loader's workers seeded by its process's number, too.

    Args:
        loader: of the user's; a `worker_init_fn` of its own stays.
        process: the number of this process.
    """
    if os.environ.get("PL_SEED_WORKERS", "0") != "0" and loader.worker_init_fn is None:
        loader.worker_init_fn = partial(pl_worker_init_function, rank=process)


@dataclass
class Delivered:
    """A batch with the state of the worker that made it; None for what has not changed since its last batch."""

    batch: Any
    worker: int
    generators: bytes | None
    dataset: Any


class ReportingCollate:
    """A collate function that, in a worker, also tells the state in which the batch left the worker."""

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self.collate = collate
        self._told = b""

    def __call__(self, samples: object) -> Any:
        """Collate."""
        batch, info = self.collate(samples), get_worker_info()
        if info is None:
            return batch
        packed = HostRandomState.current().packed
        changed, self._told = packed if packed != self._told else None, packed
        dataset: Any = info.dataset
        told = dataset.state_dict() if self._streams(dataset) else None
        return Delivered(batch, info.id, changed, told)

    @staticmethod
    def _streams(dataset: object) -> bool:
        return isinstance(dataset, IterableDataset) and is_stateful(dataset)


@dataclass
class WorkerStart:
    """Prepares a worker: the user's `worker_init_fn`, and where an epoch goes on in its middle, what the worker knew.

    Batches go to the workers in turn, and the first one after a resume goes to the first worker: each takes the part of the
    worker whose turn it would have been.

    Attributes:
        user: the user's function.
        workers: how many there are.
        first: which worker's turn the first batch is.
        generators: packed states by worker.
        datasets: states of the workers' datasets.
    """

    user: Callable[[int], None] | None
    workers: int
    first: int
    generators: dict[int, bytes]
    datasets: dict[int, Any]

    def __call__(self, worker_id: int) -> None:
        """Called in the worker, after torch has seeded it."""
        part, info = (worker_id + self.first) % self.workers, get_worker_info()
        assert info is not None, "torch calls this in a worker"
        if part != worker_id:
            _take_part(info, part)
        if self.user is not None:
            self.user(part)
        if part in self.datasets:
            dataset: Any = info.dataset
            dataset.load_state_dict(self.datasets[part])
        if part in self.generators:
            HostRandomState(self.generators[part]).restore()


def _take_part(info: WorkerInfo, part: int) -> None:
    """Be another worker to the dataset: with its number, and seeded as torch seeds it."""
    base = info.seed - info.id
    for name, value in (("id", part), ("seed", base + part)):
        object.__setattr__(info, name, value)  # it is frozen
    random.seed(base + part)
    torch.manual_seed(base + part)
    np.random.seed(_generate_state(base, part))
