"""Turn what users log into plain Python values."""

import dataclasses
import enum
import os
from argparse import Namespace
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import torch

Plain = None | bool | int | float | str | list[Any] | dict[Any, Any]


def scalar(name: str, value: object) -> object:
    """Return a metric's value as a Python scalar; one-element tensors and arrays of any library count as scalars."""
    item = getattr(value, "item", None)
    if item is None:
        return value
    try:
        return item()
    except (RuntimeError, ValueError, TypeError) as error:
        shape = tuple(getattr(value, "shape", ()))
        raise ValueError(
            f"The metric {name!r} has shape {shape}, and loggers take scalars. Log a reduction of it, such as its mean."
        ) from error


def prefixed(metrics: Mapping[str, Any], prefix: str, separator: str) -> dict[str, Any]:
    """Put a logger's prefix before every name."""
    return {f"{prefix}{separator}{name}" if prefix else name: value for name, value in metrics.items()}


def plain(value: object, _above: tuple[int, ...] = ()) -> Plain:
    """Return a hyperparameter as JSON-like data.

    Objects become text and are never walked: a module among the hyperparameters must not be searched for values.
    """
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return _plain_array(value)
    if id(value) in _above:
        return "<recursive>"
    return _plain_container(value, (*_above, id(value)))


def _plain_container(value: object, above: tuple[int, ...]) -> Plain:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), above) for field in dataclasses.fields(value)}
    if isinstance(value, Namespace):
        value = vars(value)
    if isinstance(value, Mapping):
        return {_plain_key(key): plain(item, above) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, above) for item in value]
    if isinstance(value, Set):
        return sorted((plain(item, above) for item in value), key=repr)
    return _described(value)


def _plain_key(key: object) -> object:
    return key if key is None or type(key) in (bool, int, float, str) else str(plain(key))


def _plain_array(value: torch.Tensor | np.ndarray | np.generic) -> Plain:
    size = value.numel() if isinstance(value, torch.Tensor) else value.size
    if value.ndim == 0 or size <= 16:
        return plain(value.tolist())
    return f"{type(value).__name__}(shape={tuple(value.shape)}, dtype={value.dtype})"


def _described(value: object) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    # The default repr is an address, which tells nothing and differs from run to run.
    return type(value).__name__ if type(value).__repr__ is object.__repr__ else repr(value)


def flatten(params: Mapping[Any, Any], delimiter: str = "/") -> dict[str, Any]:
    """Flatten plain nested dicts, and the dicts in lists: `{"a": {"b": 1}}` becomes `{"a/b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in params.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            value = dict(enumerate(value))
        if isinstance(value, dict) and value:
            flat.update({f"{key}{delimiter}{name}": item for name, item in flatten(value, delimiter).items()})
        else:
            flat[str(key)] = value
    return flat


def python_number(value: object) -> object:
    """A tensor or array with one element as a Python number, for trackers that take other things, too, as they are."""
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else value.detach().cpu()
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
