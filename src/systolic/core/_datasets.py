"""Loaders for the datasets of `LightningDataModule.from_datasets`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Sized
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


def described(datamodule: object) -> str:
    """A line for each kind of loader, with the number of samples of its datasets; "None" for those that are not there yet."""
    kinds = {"Train": "train", "Validation": "val", "Test": "test", "Predict": "predict"}
    return os.linesep.join(
        f"{{{kind} dataloader: {_sizes(datamodule, f'{stage}_dataloader')}}}" for kind, stage in kinds.items()
    )


def _sizes(datamodule: object, name: str) -> str:
    try:
        loaders: Any = getattr(datamodule, name)()
    except Exception:  # whatever a loader says before `setup` has made its dataset
        return "None"
    if loaders is None or isinstance(loaders, DataLoader):
        return "None" if loaders is None else f"size={_size(loaders)}"
    listed = loaders.values() if isinstance(loaders, Mapping) else loaders
    return " ; ".join(f"{number}. size={_size(loader)}" for number, loader in enumerate(listed, 1))


def _size(loader: object) -> str:
    dataset = loader.dataset if isinstance(loader, DataLoader) else loader
    return str(len(dataset)) if isinstance(dataset, Sized) else "NA"
