"""Samplers for global batches, and the samplers that would shard the data a second time."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, Sampler

from ..utilities._entries import Entry, see
from ._bucket_sampler import BucketBatchSampler


class MergedBatchSampler(Sampler[list[Any]]):
    """Joins `factor` consecutive batches of a user's batch sampler into one global batch.

    The batches at the end that do not fill a global batch form a smaller one, or are dropped when the user's batch
    sampler says `drop_last`, whose promise is batches of one shape.
    """

    def __init__(self, batch_sampler: Iterable[Any], factor: int) -> None:
        self.batch_sampler = batch_sampler
        self.factor = factor
        self.drop_last = getattr(batch_sampler, "drop_last", False) is True

    def __iter__(self) -> Iterator[list[Any]]:
        batches = iter(self.batch_sampler)
        while group := list(islice(batches, self.factor)):
            if len(group) == self.factor or not self.drop_last:
                yield list(chain.from_iterable(group))

    def __len__(self) -> int:
        batches = len(self.batch_sampler)  # type: ignore[arg-type]  # a TypeError is right when it has no length
        return batches // self.factor if self.drop_last else -(-batches // self.factor)


def scale_batch_sampler(batch_sampler: Iterable[Any], factor: int) -> Sampler[list[Any]]:
    """A batch sampler whose batches are `factor` times as large."""
    # A subclass may have worked out its batches already when it was made, so only the plain class is scaled by size.
    if type(batch_sampler) is BatchSampler:
        sampler = undo_sharding(batch_sampler.sampler)
        return BatchSampler(sampler, batch_sampler.batch_size * factor, batch_sampler.drop_last)
    if type(batch_sampler) is BucketBatchSampler:
        return batch_sampler.scaled(factor)
    return MergedBatchSampler(batch_sampler, factor)


def undo_sharding(sampler: object) -> Any:
    """The order over the whole dataset that a `DistributedSampler` deals out to its replicas; others unchanged."""
    if type(sampler) is not DistributedSampler or sampler.num_replicas == 1:
        return sampler
    # One replica: the same permutation for the same seed and epoch, nothing dealt out, nothing padded or dropped.
    whole = DistributedSampler(sampler.dataset, num_replicas=1, rank=0, shuffle=sampler.shuffle, seed=sampler.seed)
    whole.set_epoch(sampler.epoch)
    return whole


def warn_if_sharded(loader: DataLoader[Any], *, replaced: bool) -> None:
    """Explain samplers of the user that show this one process a part of the data only."""
    replaceable = _replaceable_samplers(loader) if replaced else []
    for sampler in samplers_of(loader):
        replicas = getattr(sampler, "num_replicas", None)
        if not isinstance(replicas, int) or replicas <= 1:
            continue
        kind = type(sampler).__name__
        found = (
            f"The DataLoader uses {kind}(num_replicas={replicas}, rank={getattr(sampler, 'rank', '?')}), which yields "
            f"1/{replicas} of the dataset. systolic drives all cores from one process and splits each batch among "
            "them itself, so the data would be sharded twice."
        )
        if any(sampler is candidate for candidate in replaceable):
            outcome = (
                "The sampler is replaced by the same order over the whole dataset. No sampler is needed: write "
                "DataLoader(dataset, batch_size=..., shuffle=True), or "
                "pass `Trainer(use_distributed_sampler=False)` to keep it."
            )
        else:
            outcome = (
                "The sampler is kept: training sees that part only. No sampler is needed for the whole dataset: write "
                "DataLoader(dataset, batch_size=..., shuffle=True)."
            )
        warnings.warn(f"{found} {outcome}{see(Entry.DISTRIBUTED_SAMPLER)}", stacklevel=3)


def _replaceable_samplers(loader: DataLoader[Any]) -> list[Any]:
    """The samplers that scaling a loader passes to `undo_sharding` and that it knows."""
    plain_batches = [sampler for sampler in (loader.batch_sampler, loader.sampler) if type(sampler) is BatchSampler]
    candidates = [loader.sampler, *(batches.sampler for batches in plain_batches)]
    return [sampler for sampler in candidates if type(sampler) is DistributedSampler]


def samplers_of(loader: object) -> list[Any]:
    """Every sampler that a loader, or a collection of loaders, draws indices from, each once."""
    found: dict[int, Any] = {}
    pending: list[Any] = [loader]
    while pending:
        holder = pending.pop()
        inner = [getattr(holder, name, None) for name in ("sampler", "batch_sampler")]
        for sampler in inner:
            if sampler is not None and id(sampler) not in found:
                found[id(sampler)] = sampler
                pending.append(sampler)
        pending += getattr(holder, "flattened", [])
        pending += [holder.loader] if hasattr(holder, "loader") else []
    return list(found.values())


def set_epoch(loader: object, epoch: int) -> None:
    """Tell every sampler of the loader(s) that has `set_epoch` which epoch begins, so that it shuffles anew."""
    for sampler in samplers_of(loader):
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(epoch)
