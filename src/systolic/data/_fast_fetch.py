"""Batches of tensor datasets by one indexing operation instead of one Python call a sample.

A DataLoader over a TensorDataset takes about 200 microseconds for 64 samples of 64 numbers; gathering several batches
with one indexing takes about 2 for each. The fast path is taken only where the result is the same in values, order,
container types and use of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from ._batch import BatchSpec, flatten_batch
from ._table import Table, table_of

# Batches gathered together share one allocation, so this bounds what a batch that is kept holds on to.
_READ_AHEAD_BYTES = 512 * 1024
_READ_AHEAD_BATCHES = 64

Array = np.ndarray[Any, Any]


def iterate(loader: Any) -> Iterator[Any]:
    """`iter(loader)`, by the fast path when the loader allows it.

    Tensors of the dataset that the user changes in place during an epoch are seen up to 64 batches later.
    """
    table = table_of(loader)
    if table is None:
        return iter(loader)
    if _order_is_known(loader.batch_sampler, table):
        _draw_seed(loader)
        return map(table.pack, _ordered_batches(table, loader.batch_sampler))
    index_batches = iter(loader.batch_sampler)
    _draw_seed(loader)
    return _batches(table, loader, index_batches, _read_ahead(loader, table))


def is_vectorised(loader: object) -> bool:
    """Whether `iterate` takes the fast path for this loader."""
    return table_of(loader) is not None


@dataclass(frozen=True)
class ArrayBatches:
    """A loader's batches as arrays on the host that nobody writes to afterwards.

    Attributes:
        spec: what a batch is besides its tensors, the same for all batches.
        arrays: the tensors of each batch.
    """

    spec: BatchSpec
    arrays: Iterator[list[Array]]


def array_batches(loader: Any) -> ArrayBatches | None:
    """The batches of `iterate` without PyTorch's tensors around them, where that is as simple as slicing arrays.

    Args:
        loader: anything that yields batches; None is returned for all but loaders of tensor datasets in an order that
            is known beforehand.
    """
    table = table_of(loader)
    if table is None or not _order_is_known(loader.batch_sampler, table) or not all(map(_numpy_takes, table.columns)):
        return None
    _draw_seed(loader)
    leaves, spec = flatten_batch(table.pack(table.columns))
    assert all(leaf is column for leaf, column in zip(leaves, table.columns, strict=True)), "a column is a leaf"
    return ArrayBatches(spec, _ordered_arrays(table, loader.batch_sampler))


def _draw_seed(loader: DataLoader[Any]) -> None:
    """A DataLoader draws a seed for its workers, also when it has none: later random numbers depend on it."""
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _order_is_known(batch_sampler: object, table: Table) -> bool:
    """Whether an epoch's indices can be had as one array: all of the data in order, or in one random permutation."""
    if type(batch_sampler) is not BatchSampler:
        return False
    sampler: Any = batch_sampler.sampler
    if type(sampler) is RandomSampler:
        plain = sampler.generator is None and not sampler.replacement and sampler.num_samples == len(sampler.data_source)
    else:
        plain = type(sampler) is SequentialSampler
    return plain and len(sampler.data_source) <= table.length


def _order(sampler: RandomSampler | SequentialSampler) -> Array:
    """The indices that the sampler yields, drawn as it draws them."""
    if isinstance(sampler, SequentialSampler):
        return np.arange(len(sampler.data_source))
    generator = torch.Generator()
    generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_().item()))
    return torch.randperm(len(sampler.data_source), generator=generator).numpy()


def _ordered_groups(table: Table, batch_sampler: Any) -> Iterator[torch.Tensor]:
    """The rows of each group of batches; the order is drawn with the first, as a sampler does it."""
    size = batch_sampler.batch_size
    order = _order(batch_sampler.sampler)
    end = len(order) // size * size if batch_sampler.drop_last else len(order)
    step = size * _batches_ahead(table, size)
    for start in range(0, end, step):
        yield table.rows_at(order[start : min(start + step, end)])


def _ordered_batches(table: Table, batch_sampler: BatchSampler) -> Iterator[tuple[torch.Tensor, ...]]:
    for rows in _ordered_groups(table, batch_sampler):
        yield from zip(*_split(table, rows, batch_sampler.batch_size), strict=True)


def _ordered_arrays(table: Table, batch_sampler: BatchSampler) -> Iterator[list[Array]]:
    size = batch_sampler.batch_size
    for rows in _ordered_groups(table, batch_sampler):
        taken = [_taken_array(column, rows) for column in table.columns]
        for start in range(0, len(rows), size):
            yield [array[start : start + size] for array in taken]


def _batches(table: Table, loader: DataLoader[Any], index_batches: Iterator[Any], read_ahead: int) -> Iterator[Any]:
    """Batches whose indices only the sampler knows."""
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


def _gather(table: Table, group: list[Any]) -> list[tuple[torch.Tensor, ...]] | None:
    """For each column its batches, or None when the indices are not plain numbers within the dataset."""
    indices = list(chain.from_iterable(group))
    if set(map(type, indices)) != {int}:
        return None
    index = np.array(indices, dtype=np.int64)
    if index.min() < 0 or index.max() >= table.length:
        return None
    return _split(table, table.rows_at(index), len(group[0]))


def _split(table: Table, rows: torch.Tensor, size: int) -> list[tuple[torch.Tensor, ...]]:
    """For each column its batches of these rows.

    Unlike `split`, `unsafe_split` gives tensors that are no views of one another: changing one batch in place does not
    invalidate what autograd saved of another.
    """
    return [_taken(column, rows).unsafe_split(size) for column in table.columns]


def _taken(column: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(_taken_array(column, rows)) if _numpy_takes(column) else column.index_select(0, rows)


def _taken_array(column: torch.Tensor, rows: torch.Tensor) -> Array:
    """Rows of a column. NumPy's copy is as fast as PyTorch's and wakes no threads, which XLA needs for the step."""
    return np.take(column.numpy(), rows.numpy(), axis=0)


def _numpy_takes(column: torch.Tensor) -> bool:
    return column.dtype in _NUMPY_DTYPES and not column.requires_grad and column.numel() > 0


_NUMPY_DTYPES = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool}
)


def _read_ahead(loader: DataLoader[Any], table: Table) -> int:
    """How many batches may be fetched together without changing when random numbers are drawn."""
    batch_sampler: Any = loader.batch_sampler
    if type(batch_sampler) is not BatchSampler or not _draws_at_start(batch_sampler.sampler):
        return 1
    return _batches_ahead(table, batch_sampler.batch_size)


def _batches_ahead(table: Table, batch_size: int) -> int:
    row_bytes = sum(column[0].nbytes for column in table.columns)
    return max(1, min(_READ_AHEAD_BATCHES, _READ_AHEAD_BYTES // max(1, row_bytes * batch_size)))


def _draws_at_start(sampler: object) -> bool:
    """Whether all random numbers up to the last index are drawn with the first, or by a generator of its own."""
    if type(sampler) is RandomSampler:
        return sampler.generator is None or (not sampler.replacement and sampler.num_samples <= len(sampler.data_source))
    return type(sampler) in (SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
