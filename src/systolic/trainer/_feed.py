"""From a loader to batches on the devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..data import BatchSpec, flatten_batch, iterate
from ..runtime._convert import to_jax_array
from ..runtime._placement import Placement
from ..runtime._prefetch import Prefetcher


@dataclass(frozen=True, slots=True)
class FedBatch:
    """A batch, ready for a step.

    Attributes:
        host: what the loader gave, for hooks.
        leaves: its tensors on the devices (or as they are, in eager mode).
        spec: how to put them together again.
        dataloader_idx: which loader it came from.
        index: its number in that loader.
    """

    host: Any
    leaves: list[Any]
    spec: BatchSpec
    dataloader_idx: int
    index: int

    def rebuild(self, leaves: list[Any]) -> tuple[Any]:
        """The positional arguments of a step, made of other tensors."""
        return (self.spec.unflatten(leaves),)


def feed(
    loader: Iterable[Any],
    placement: Placement | None,
    *,
    transform: Callable[[Any, int], Any] | None = None,
    depth: int = 2,
    dataloader_idx: int = 0,
    limit: int | float = float("inf"),
) -> Iterator[FedBatch]:
    """Batches of one loader, copied to the devices ahead of their use.

    Args:
        loader: anything that yields batches.
        placement: the devices; None leaves tensors where they are (eager mode) and starts no thread.
        transform: the user's `on_before_batch_transfer`.
        depth: how many batches may wait on the devices; 0 copies each batch when it is needed, without a thread.
        dataloader_idx: the loader's number, handed on.
        limit: how many batches to take.
    """

    def prepare(item: tuple[int, Any]) -> FedBatch:
        index, batch = item
        if transform is not None:
            batch = transform(batch, dataloader_idx)
        tensors, spec = flatten_batch(batch)
        leaves = tensors if placement is None else [placement.shard(_as_array(t)) for t in tensors]
        if placement is None:
            leaves = [torch.from_numpy(t) if isinstance(t, np.ndarray) else t for t in tensors]
        return FedBatch(batch, leaves, spec, dataloader_idx, index)

    batches = _limited(loader, limit)
    if placement is None or depth == 0:
        return map(prepare, batches)
    return iter(Prefetcher(batches, prepare, depth))


def _limited(loader: Iterable[Any], limit: int | float) -> Iterator[tuple[int, Any]]:
    if limit == 0:
        return
    for index, batch in enumerate(iterate(loader)):
        yield index, batch
        if index + 1 >= limit:
            return


def _as_array(value: Any) -> Any:
    return to_jax_array(value) if isinstance(value, torch.Tensor) else value
