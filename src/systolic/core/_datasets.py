"""Loaders for the datasets of `LightningDataModule.from_datasets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset

Datasets = Dataset[Any] | Sequence[Dataset[Any]] | Mapping[str, Dataset[Any]]


def loaders_of(datasets: Datasets, *, batch_size: int, num_workers: int, shuffle: bool) -> Any:
    """A loader for a dataset; for a sequence or a dict of datasets as many.

    Args:
        datasets: the datasets.
        batch_size: samples in a batch.
        num_workers: processes that load.
        shuffle: whether to shuffle, where the dataset is no stream.
    """

    def loader(dataset: Dataset[Any]) -> DataLoader[Any]:
        mixed = shuffle and not isinstance(dataset, IterableDataset)
        return DataLoader(dataset, batch_size=batch_size, shuffle=mixed, num_workers=num_workers, pin_memory=False)

    if isinstance(datasets, Mapping):
        return {name: loader(dataset) for name, dataset in datasets.items()}
    if isinstance(datasets, Sequence) and not isinstance(datasets, Dataset):
        return [loader(dataset) for dataset in datasets]
    return loader(datasets)
