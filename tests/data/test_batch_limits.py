"""Limits, lengths, and loaders that cannot be used."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from systolic.data import (
    CombinedLoader,
    EmptyLoaderError,
    NotIterableError,
    check_loader,
    empty_loader_error,
    has_len,
    limit_batches,
    num_batches,
    scale_loader,
)
from systolic.exceptions import MisconfigurationException


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Sized(Stream):
    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("batches", "limit", "expected"),
    [
        (10, 1.0, 10),
        (10, None, 10),
        (10, 1, 1),
        (10, 0, 0),
        (10, 0.0, 0),
        (10, 3, 3),
        (10, 30, 10),
        (10, 5.0, 5),
        (10, 0.25, 2),
        (0, 0.25, 0),
        (math.inf, 1.0, math.inf),
        (math.inf, 4, 4),
        (math.inf, 0.0, 0),
    ],
)
def test_limit(batches: float, limit: float | None, expected: float) -> None:
    assert limit_batches(batches, limit) == expected


@pytest.mark.parametrize(
    ("batches", "limit", "message"),
    [
        (10, -1, "from 0.0 to 1.0"),
        (10, 1.5, "invalid value 1.5"),
        (10, "3", "invalid value '3'"),
        (10, math.nan, "invalid value nan"),
        (10, 0.05, "at least `limit_val_batches=0.1`"),
        (math.inf, 0.5, "does not know how many"),
    ],
)
def test_limit_refused(batches: float, limit: Any, message: str) -> None:
    with pytest.raises(MisconfigurationException, match=message) as caught:
        limit_batches(batches, limit, name="limit_val_batches")
    assert "limit_val_batches" in str(caught.value)


def test_lengths() -> None:
    assert num_batches(DataLoader(TensorDataset(torch.ones(103)), batch_size=10)) == 11
    assert num_batches(DataLoader(Sized(), batch_size=2)) == 2
    assert num_batches(DataLoader(Stream(), batch_size=2)) == math.inf
    assert has_len([1])
    assert not has_len(iter([1]))
    assert not has_len(DataLoader(Stream()))


def test_usable_loaders_pass() -> None:
    for loader in (DataLoader(Stream()), [torch.ones(1)], iter([1]), CombinedLoader([[1], [2]])):
        check_loader(loader)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (None, "is None.*is its `return` missing"),
        (3, "not iterable.*received 3 of type int"),
        (DataLoader, "not iterable"),
        ("data/train", "not iterable"),
        (CombinedLoader([[1], None]), r"val_dataloaders\[1\]` is None"),
        (CombinedLoader({"a": 5}), "not iterable"),
    ],
)
def test_what_is_no_loader(loader: Any, message: str) -> None:
    with pytest.raises(NotIterableError, match=message) as caught:
        check_loader(loader, name="val_dataloaders")
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, MisconfigurationException)


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        ([], "this list yields none"),
        (DataLoader(TensorDataset(torch.ones(0))), "dataset has 0 samples"),
        (DataLoader(TensorDataset(torch.ones(5)), sampler=[]), "sampler yields no index"),
        (CombinedLoader([[], [1]]), "yields none"),
    ],
)
def test_empty_loaders(loader: Any, message: str) -> None:
    with pytest.raises(EmptyLoaderError, match=message):
        check_loader(loader)


def test_drop_last_of_a_global_batch_is_named_as_the_reason() -> None:
    loader = scale_loader(DataLoader(TensorDataset(torch.ones(103)), batch_size=32, drop_last=True), 8)
    with pytest.raises(EmptyLoaderError, match="103 samples, fewer than one global batch of 256.*drop_last=True"):
        check_loader(loader)


def test_a_stream_that_turned_out_empty() -> None:
    assert "Stream yields none" in str(empty_loader_error(DataLoader(Stream())))
