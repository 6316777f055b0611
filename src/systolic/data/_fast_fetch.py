"""Batches of tensor datasets by one indexing operation instead of one Python call a sample.

A DataLoader over a TensorDataset takes about 200 microseconds for 64 samples of 64 numbers; gathering several batches
with one `index_select` takes about 10 for each. The fast path is taken only where the result is the same in values,
order, container types and use of random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

# Batches gathered together share one allocation, so this bounds what a batch that is kept holds on to.
_READ_AHEAD_BYTES = 512 * 1024
_READ_AHEAD_BATCHES = 64
_HOOKS = ("__iter__", "_get_iterator", "_index_sampler", "_auto_collation")


@dataclass(frozen=True)
class _Table:
    """The columns of a tensor dataset, the rows of a subset, and the container its batches come in."""

    columns: tuple[torch.Tensor, ...]
    rows: torch.Tensor | None
    length: int
    pack: Callable[[tuple[torch.Tensor, ...]], Any]


def iterate(loader: Any) -> Iterator[Any]:
    """`iter(loader)`, by the fast path when the loader allows it.

    Tensors of the dataset that the user changes in place during an epoch are seen up to 64 batches later.
    """
    table = _table_of(loader)
    if table is None:
        return iter(loader)
    index_batches = iter(loader.batch_sampler)
    # A DataLoader draws a seed for its workers, also when it has none: later random numbers depend on it.
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    return _batches(table, loader, index_batches, _read_ahead(loader, table))


def is_vectorised(loader: Any) -> bool:
    """Whether `iterate` takes the fast path for this loader."""
    return _table_of(loader) is not None


def _batches(table: _Table, loader: DataLoader[Any], index_batches: Iterator[Any], read_ahead: int) -> Iterator[Any]:
    remaining = len(loader.batch_sampler) if read_ahead > 1 else 0  # type: ignore[arg-type]
    while True:
        # The last batch is fetched alone: past it, RandomSampler draws from the user's generator once more.
        count = max(1, min(read_ahead, remaining - 1))
        group = list(islice(index_batches, count))
        if not group:
            return
        remaining -= len(group)
        columns = _gather(table, group)
        if columns is None:
            yield from (default_collate([loader.dataset[index] for index in indices]) for indices in group)
        else:
            yield from map(table.pack, zip(*columns, strict=True))


def _gather(table: _Table, group: list[Any]) -> list[tuple[torch.Tensor, ...]] | None:
    """For each column its batches, or None when the indices are not plain numbers within the dataset."""
    indices = list(chain.from_iterable(group))
    if set(map(type, indices)) != {int}:
        return None
    index = np.array(indices, dtype=np.int64)
    if index.min() < 0 or index.max() >= table.length:
        return None
    rows = torch.from_numpy(index)
    if table.rows is not None:
        rows = table.rows.index_select(0, rows)
    # Unlike `split`, `unsafe_split` gives tensors that are no views of one another: changing one batch in place does
    # not invalidate what autograd saved of another.
    size = len(group[0])
    return [_taken(column, rows).unsafe_split(size) for column in table.columns]


def _taken(column: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Rows of a column. NumPy's copy is as fast as PyTorch's and wakes no threads, which XLA needs for the step."""
    if column.dtype not in _NUMPY_DTYPES or column.requires_grad or not column.numel():
        return column.index_select(0, rows)
    return torch.from_numpy(np.take(column.numpy(), rows.numpy(), axis=0))


_NUMPY_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
)


def _read_ahead(loader: DataLoader[Any], table: _Table) -> int:
    """How many batches may be fetched together without changing when random numbers are drawn."""
    batch_sampler: Any = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler or not _draws_at_start(batch_sampler.sampler):
        return 1
    row_bytes = sum(column[0].nbytes for column in table.columns)
    batch_bytes = max(1, row_bytes * batch_sampler.batch_size)
    return max(1, min(_READ_AHEAD_BATCHES, _READ_AHEAD_BYTES // batch_bytes))


def _draws_at_start(sampler: Any) -> bool:
    """Whether all random numbers up to the last index are drawn with the first, or by a generator of its own."""
    if type(sampler) is RandomSampler:
        return sampler.generator is None or (not sampler.replacement and sampler.num_samples <= len(sampler.data_source))
    return type(sampler) in (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def _table_of(loader: Any) -> _Table | None:
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
    return _Table(columns, rows, size if length is None else length, pack)


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


def _columns_of(dataset: Any) -> tuple[tuple[Any, ...], Callable[[tuple[torch.Tensor, ...]], Any]]:
    """The tensors of a dataset and the container that `default_collate` makes of its samples."""
    if type(dataset) is TensorDataset:
        return dataset.tensors, list
    if type(dataset) is StackDataset and isinstance(dataset.datasets, dict):
        names = tuple(dataset.datasets)
        return tuple(dataset.datasets.values()), lambda batch: dict(zip(names, batch, strict=True))
    if type(dataset) is StackDataset:
        return tuple(dataset.datasets), list
    return (), list


def _is_plain(column: Any) -> bool:
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
