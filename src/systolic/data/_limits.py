"""How many batches a loader has, and how many of them a run may use."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from ..exceptions import MisconfigurationException
from ._errors import EmptyLoaderError, NotIterableError


def num_batches(loader: Any) -> int | float:
    """`len(loader)`, or infinity when the loader does not know it."""
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        # An iterable dataset without a length makes `len(DataLoader)` raise, although the method exists.
        return math.inf


def has_len(loader: object) -> bool:
    """Whether the loader knows its number of batches."""
    return num_batches(loader) != math.inf


def limit_batches(n_batches: int | float, limit: int | float | None, *, name: str = "limit_train_batches") -> int | float:
    """How many of `n_batches` to use: an int is a number of batches, a float in [0, 1] a part of them.

    Args:
        n_batches: the batches there are; infinity when unknown.
        limit: the value of the Trainer's argument; None means all.
        name: the Trainer's argument, for error messages.

    Raises:
        MisconfigurationException: the limit is out of range, selects less than one batch, or is a part of an
            unknown number.
    """
    limit = check_limit(limit, name=name)
    if n_batches == 0 or limit == 0:
        return 0
    if isinstance(limit, int):
        return min(n_batches, limit)
    if limit == 1.0:
        return n_batches
    if n_batches == math.inf:
        raise MisconfigurationException(
            f"`{name}={limit}` asks for a part of the batches, but this loader does not know how many it has "
            f"(an iterable dataset without `__len__`). Pass an int, the number of batches, or 1.0 for all of them."
        )
    selected = int(n_batches * limit)
    if selected == 0:
        raise MisconfigurationException(
            f"`{name}={limit}` of {n_batches} batches is less than one batch. Pass at least "
            f"`{name}={1 / n_batches}`, or an int, the number of batches."
        )
    return selected


def check_limit(limit: int | float | None, *, name: str) -> int | float:
    """The limit in its normal form: an int counts batches, a float in [0, 1] is a part.

    Args:
        limit: the value of the Trainer's argument; None means all.
        name: the Trainer's argument, for the error message.

    Raises:
        MisconfigurationException: the limit is neither.
    """
    if limit is None:
        return 1.0
    if isinstance(limit, int | float) and 0 <= limit <= 1:
        return limit
    if isinstance(limit, int | float) and limit > 1 and limit % 1 == 0:
        return int(limit)
    raise MisconfigurationException(
        f"`{name}` must be an int (a number of batches) or a float from 0.0 to 1.0 (a part of them), received {limit!r}."
    )


def check_loader(loader: object, *, name: str = "train_dataloaders") -> None:
    """Refuse what cannot be a loader.

    Args:
        loader: what the user gave as one.
        name: the argument that it was given as, for the error message.

    Raises:
        NotIterableError: it is None, or cannot be iterated over.
        EmptyLoaderError: it has no batch.
    """
    if loader is None:
        raise NotIterableError(
            f"`{name}` is None: expected a DataLoader or any iterable of batches. Pass one, or return one from the "
            "module's or datamodule's `*_dataloader` method (is its `return` missing?)."
        )
    if not _is_iterable(loader):
        raise NotIterableError(
            f"`{name}` is not iterable: expected a DataLoader or any iterable of batches, received "
            f"{loader!r} of type {type(loader).__name__}. Wrap a dataset as `DataLoader(dataset, batch_size=...)`."
        )
    for index, inner in enumerate(getattr(loader, "flattened", [])):
        if inner is None or not _is_iterable(inner):
            check_loader(inner, name=f"{name}[{index}]")
    if num_batches(loader) == 0:
        raise empty_loader_error(loader, name=name)


def empty_loader_error(loader: object, *, name: str = "train_dataloaders") -> EmptyLoaderError:
    """The error for a loader that gave no batch, with the reason where it can be told."""
    return EmptyLoaderError(
        f"`{name}` has no batch: expected at least one, and {_why_empty(loader)}. "
        "Give it data, or leave the loader out to skip this stage."
    )


def _is_iterable(loader: object) -> bool:
    # A class, or the text of a path, is iterable to Python but never a loader; `__getitem__` makes iterable by index.
    if isinstance(loader, type | str | bytes):
        return False
    return isinstance(loader, Iterable) or hasattr(loader, "__getitem__")


def _why_empty(loader: object) -> str:
    if not isinstance(loader, DataLoader):
        return f"this {type(loader).__name__} yields none"
    if isinstance(loader.dataset, IterableDataset):
        return f"iterating over its {type(loader.dataset).__name__} yields none"
    samples = num_batches(loader.dataset)
    batch_size = getattr(loader.batch_sampler, "batch_size", None)
    if samples and getattr(loader.batch_sampler, "drop_last", False):
        return (
            f"its dataset has {samples} samples, fewer than one global batch of {batch_size} (batch_size x number of "
            "cores), which `drop_last=True` drops: use a smaller batch_size, fewer devices, or drop_last=False"
        )
    return f"its dataset has {samples} samples" if samples == 0 else "its sampler yields no index"
