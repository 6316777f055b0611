"""Tensor datasets whose batches one indexing operation makes, with what stands in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, StackDataset, Subset, TensorDataset, default_collate

from ..utilities._torch_internals import collate_tensor_fn, default_collate_fn_map

_HOOKS = ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation")


@dataclass(frozen=True)
class Table:
    """The columns of a tensor dataset, the rows of a subset, and the container its batches come in."""

    columns: tuple[torch.Tensor, ...]
    rows: torch.Tensor | None
    length: int
    pack: Callable[[tuple[torch.Tensor, ...]], Any]

    def rows_at(self, indices: np.ndarray[Any, Any]) -> torch.Tensor:
        """Rows of samples in the columns."""
        rows = torch.from_numpy(indices)
        return rows if self.rows is None else self.rows.index_select(0, rows)


def table_of(loader: object) -> Table | None:
    """The table that a loader's batches are rows of; None when the loader has to make them itself."""
    if not isinstance(loader, DataLoader) or not _loads_plainly(loader):
        return None
    dataset: Any = loader.dataset
    rows: torch.Tensor | None = None
    length = None
    while type(dataset) is Subset:
        own_rows = _rows_of(dataset)
        if own_rows is None:
            return None
        length = len(own_rows) if length is None else length
        rows = own_rows if rows is None else own_rows.index_select(0, rows)
        dataset = dataset.dataset
    columns, pack = _columns_of(dataset)
    if not columns or not all(map(_is_plain, columns)) or len({len(column) for column in columns}) > 1:
        return None
    size = len(columns[0])
    if size == 0:
        return None
    return Table(columns, rows, size if length is None else length, pack)


def _loads_plainly(loader: DataLoader[Any]) -> bool:
    """Whether the loader fetches in this process, by torch's own code, with torch's own collation of tensors."""
    return (
        all(getattr(type(loader), name) is getattr(DataLoader, name) for name in _HOOKS)
        and loader.num_workers == 0
        and loader.timeout == 0
        and loader.batch_sampler is not None
        and loader.collate_fn is default_collate
        and default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn
        and not (loader.pin_memory and torch.accelerator.is_available())
    )


def _rows_of(subset: Subset[Any]) -> torch.Tensor | None:
    """The indices of a subset, when they are plain numbers within its dataset."""
    indices: Any = subset.indices
    if isinstance(indices, list | tuple) and set(map(type, indices)) != {int}:
        return None
    if not isinstance(indices, list | tuple | range | np.ndarray | torch.Tensor):
        return None
    rows = np.asarray(indices)
    if rows.dtype not in (np.int64, np.int32) or rows.ndim != 1 or rows.size == 0:
        return None
    if rows.min() < 0 or rows.max() >= len(subset.dataset):  # type: ignore[arg-type]
        return None
    return torch.from_numpy(rows.astype(np.int64))


def _columns_of(dataset: object) -> tuple[tuple[Any, ...], Callable[[tuple[torch.Tensor, ...]], Any]]:
    """The tensors of a dataset and the container that `default_collate` makes of its samples."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, list
    if type(dataset) is StackDataset and isinstance(dataset.datasets, dict):
        names = tuple(dataset.datasets)
        return tuple(dataset.datasets.values()), lambda batch: dict(zip(names, batch, strict=True))
    if type(dataset) is StackDataset:
        return tuple(dataset.datasets), list
    return (), list


def _is_plain(column: object) -> bool:
    """Whether `index_select` gives what stacking single rows gives: a dense CPU tensor without history."""
    return (
        type(column) is torch.Tensor
        and column.layout is torch.strided
        and column.device.type == "cpu"
        and column.ndim >= 1
        and column.is_contiguous()
        and not column.requires_grad
        and not column.is_quantized
        and not column.is_conj()
        and not column.is_neg()
    )
