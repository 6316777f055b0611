"""`Trainer(overfit_batches=...)`: the same few batches in every epoch."""

from __future__ import annotations

import warnings
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, SequentialSampler

from ..data import rebuild_loader


def in_order(loader: Any, data: str) -> Any:
    """A loader that gives the same batches in every epoch: one that shuffles is made anew without.

    Args:
        loader: any loader.
        data: "train" or "val", for the warning.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader
    if isinstance(loader.sampler, SequentialSampler):
        return loader
    warnings.warn(
        f"You requested to overfit but enabled {data} dataloader shuffling: the loader is used without, for the same batches.",
        stacklevel=2,
    )
    sampler = SequentialSampler(loader.dataset)  # pyright: ignore[reportArgumentType]
    return rebuild_loader(loader, sampler=sampler, batch_size=loader.batch_size, drop_last=loader.drop_last)
