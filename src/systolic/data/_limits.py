"""How many batches a loader has, and how many of them a run may use."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from ..exceptions import MisconfigurationException, PossibleUserWarning
from ._errors import EmptyLoaderError, NotIterableError


def num_batches(loader: Any) -> int | float:
    """`len(loader)`, or infinity when the loader does not know it."""
    try:
        return len(loader)
    except ValueError as error:
        raise _false_length(loader, error) from error
    except (TypeError, NotImplementedError) as error:
        if "cannot be interpreted as an integer" in str(error):
            raise _false_length(loader, error) from error
        # An iterable dataset without a length makes `len(DataLoader)` raise, although the method exists.
        return math.inf


def _false_length(loader: object, error: Exception) -> MisconfigurationException:
    return MisconfigurationException(
        f"`{type(loader).__name__}.__len__` must return how many batches there are, an integer >= 0; leave the method out "
        f"where that is not known. Received: {error}."
    )


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
            f"`{name}={limit}` asks for a part of the batches, but this loader does not know how many it has. Of an "
            f"`IterableDataset` without `__len__`, `Trainer({name})` must be `1.0` or an int, a number of batches."
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
        f"`{name}` was passed invalid value {limit!r}. It must be an int (a number of batches) or a float from 0.0 to 1.0 (a "
        "part of them)."
    )


def check_loader(
    loader: object, *, name: str = "train_dataloaders", source: str = "passed", may_be_empty: bool = False
) -> None:
    """Refuse what cannot be a loader.

    Args:
        loader: what the user gave as one.
        name: the argument that it was given as, for the error message.
        source: how it came here, such as "returned from `Net.val_dataloader()`", for the error message.
        may_be_empty: whether one without a batch will do.

    Raises:
        NotIterableError: it is None, or cannot be iterated over.
        EmptyLoaderError: it has no batch.
    """
    if loader is None:
        raise NotIterableError(
            f"An invalid dataloader was {source}. `{name}` is None: expected a DataLoader or any iterable of batches. Pass "
            "one, or return one from the module's or datamodule's `*_dataloader` method (is its `return` missing?)."
        )
    if not _is_iterable(loader):
        raise NotIterableError(
            f"An invalid dataloader was {source}. `{name}` is not iterable: expected a DataLoader or any iterable of batches, "
            f"received {loader!r} of type {type(loader).__name__}. Wrap a dataset as `DataLoader(dataset, batch_size=...)`."
        )
    _require_iterables(loader, name, source)
    if not may_be_empty and num_batches(loader) == 0:
        raise empty_loader_error(loader, name=name)


def _require_iterables(loader: object, name: str, source: str) -> None:
    for index, inner in _inner(loader):
        if inner is None or not _is_iterable(inner):
            check_loader(inner, name=f"{name}[{index!r}]", source=source)
        _require_iterables(inner, f"{name}[{index!r}]", source)


def _inner(loader: object) -> Iterable[tuple[Any, Any]]:
    """The loaders in one that has several, and their places."""
    if type(loader) is dict:
        return loader.items()
    if isinstance(loader, list | tuple) and all(isinstance(child, int | float | str) for child in loader):
        return ()  # numbers are data
    return enumerate(loader if type(loader) in (list, tuple) else getattr(loader, "flattened", []))  # pyright: ignore[reportArgumentType]


def warn_of_unlikely_loader(loader: object, *, name: str = "train_dataloaders") -> None:
    """Warn of what can be iterated over, and is probably meant otherwise.

    Args:
        loader: what the user gave as one.
        name: the argument that it was given as.
    """
    what = None
    if isinstance(loader, torch.Tensor | np.ndarray):
        what = "is one tensor, each row of which is taken for a batch. Wrap it as DataLoader(TensorDataset(x), batch_size=...)."
    elif isinstance(loader, Dataset) and not isinstance(loader, IterableDataset):
        what = "is a dataset, each sample of which is taken for a batch. Wrap it as DataLoader(dataset, batch_size=...)."
    elif type(loader) in (list, tuple) and any(_is_batch(inner) for _, inner in _inner(loader)):
        what = (
            "is a list of loaders, as in Lightning, and these hold tensors, each of which is taken for a batch. For a list of "
            "batches write DataLoader(batches, batch_size=None)."
        )
    if what is not None:
        warnings.warn(f"`{name}` {what}", PossibleUserWarning, stacklevel=4)


def _is_batch(loader: object) -> bool:
    """Whether something that is given as a loader looks like a batch."""
    return isinstance(loader, torch.Tensor | np.ndarray) or (
        isinstance(loader, list | tuple) and bool(loader) and all(isinstance(part, torch.Tensor) for part in loader)
    )


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
