"""Warnings of what a loader's workers will cost or give twice, before anything is read."""

from __future__ import annotations

import multiprocessing
import warnings
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from ..exceptions import PossibleUserWarning
from ..utilities.data import suggested_max_num_workers


def warn_of_workers(loader: DataLoader[Any], name: str, *, processes: int, reloads: bool) -> None:
    """Warn of too few workers for the machine's cores, of workers that are started anew where that is slow or not safe, and of
    those that may give samples twice.

    A loader over a TensorDataset is not asked to have workers: its samples are in memory already, and would be sent between
    processes.

    Args:
        loader: of the user's.
        name: as in `train_dataloader`.
        processes: how many processes of this run are on this machine, each with such a loader.
        reloads: whether the Trainer asks for new loaders between epochs.
    """
    if isinstance(loader.dataset, IterableDataset) and hasattr(type(loader.dataset), "__len__"):
        warnings.warn(
            f"Your `IterableDataset` has `__len__` defined. The '{name}' takes it for the number of samples that all workers "
            "give together: with several, each has to give samples of its own.",
            stacklevel=4,
        )
    context = loader.multiprocessing_context or multiprocessing
    most = suggested_max_num_workers(processes)
    if loader.num_workers > 0 and context.get_start_method() == "spawn" and not loader.persistent_workers:
        warnings.warn(
            f"The {loader.num_workers} workers of '{name}' are spawned, each with imports of its own, again in every epoch. "
            "Consider setting `persistent_workers=True`.",
            stacklevel=4,
        )
    elif loader.num_workers < 2 <= most and not isinstance(loader.dataset, TensorDataset):
        warnings.warn(
            f"The '{name}' does not have many workers (num_workers={loader.num_workers}), and training may wait for it: this "
            f"machine has cores for `DataLoader(num_workers={most})`.",
            PossibleUserWarning,
            stacklevel=4,
        )
    if loader.persistent_workers and loader.pin_memory and reloads:
        warnings.warn(
            f"The combination of persistent_workers=True and pin_memory=True in '{name}' and "
            "Trainer(reload_dataloaders_every_n_epochs=...) can crash in PyTorch, which does not end the old loader's threads "
            "(https://github.com/pytorch/pytorch/issues/91252). Set `pin_memory=False`.",
            PossibleUserWarning,
            stacklevel=4,
        )
