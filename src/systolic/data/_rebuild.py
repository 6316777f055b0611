"""Scaling a user's DataLoader from the batch of one core to the batch of all cores."""

from __future__ import annotations

from typing import Any, TypeVar

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ..exceptions import MisconfigurationException
from ._merge import MergedLoader
from ._reinstantiate import rebuild_loader
from ._samplers import scale_batch_sampler, undo_sharding, warn_if_sharded

LoaderT = TypeVar("LoaderT")


def scale_loader(loader: LoaderT, factor: int, *, use_distributed_sampler: bool = True) -> LoaderT | MergedLoader:
    """A loader like the user's whose batches hold `factor` times as many samples, in the same order.

    `DataLoader(batch_size=32)` on 8 cores means 32 samples a core: the one process here loads 256 and the step shards
    them. The last partial batch keeps its true size. Iterables that are not DataLoaders come back unchanged: their
    batch is the global batch. A loader that yields collated batches of its own (`batch_size=None`) comes back as a
    `MergedLoader`, which joins consecutive ones.

    Args:
        loader: the user's loader.
        factor: the number of cores that share a batch.
        use_distributed_sampler: False leaves the loader alone, as the Trainer's argument of that name promises.

    Raises:
        MisconfigurationException: the loader is of a subclass that cannot be made again, or `factor` is below 1.
    """
    if factor < 1:
        raise MisconfigurationException(f"A batch is shared by at least one core, received factor={factor}.")
    if not isinstance(loader, DataLoader):
        return loader
    changes_loader = use_distributed_sampler and factor > 1
    warn_if_sharded(loader, replaced=changes_loader)
    return _scale(loader, factor) if changes_loader else loader  # type: ignore[return-value]


def _scale(loader: DataLoader[Any], factor: int) -> DataLoader[Any] | MergedLoader:
    if isinstance(loader.dataset, IterableDataset):
        if loader.batch_size is None:
            return MergedLoader(rebuild_loader(loader, batch_size=None), factor)
        return rebuild_loader(loader, batch_size=loader.batch_size * factor, drop_last=loader.drop_last)
    if loader.batch_size is not None:
        return rebuild_loader(
            loader,
            batch_size=loader.batch_size * factor,
            sampler=undo_sharding(loader.sampler),
            drop_last=loader.drop_last,
        )
    if loader.batch_sampler is not None:
        return rebuild_loader(loader, batch_sampler=scale_batch_sampler(loader.batch_sampler, factor))
    if type(loader.sampler) is BatchSampler:
        # The dataset takes whole lists of indices (`DataLoader(batch_size=None, sampler=BatchSampler(...))`).
        return rebuild_loader(loader, batch_size=None, sampler=scale_batch_sampler(loader.sampler, factor))
    return MergedLoader(rebuild_loader(loader, batch_size=None, sampler=undo_sharding(loader.sampler)), factor)
