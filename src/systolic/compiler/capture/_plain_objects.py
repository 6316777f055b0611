"""Objects of the user's classes that are nothing to PyTorch: meters, histories, records; and those that steps make."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from .._users import is_the_users

PLAIN = (bool, int, float, complex, str, bytes, type(None))
COMPARED = (*PLAIN, np.number, np.bool_, torch.dtype, torch.device, torch.Size)
CALLED = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)
DATA = (Dataset, DataLoader, Sampler)  # worked on by the loader's thread while a step is traced
_OF_TORCH = (torch.nn.Module, torch.optim.Optimizer, torch.Tensor, *DATA)


def same_elements(a: AbstractSet[Any], b: AbstractSet[Any], equal: Callable[[object, object], bool]) -> bool:
    """Whether two sets hold the same elements: the very ones, or ones that are equal by more than Python's `==`."""
    known = {one: one for one in a}
    return a == b and all(known[one] is one or equal(known[one], one) for one in b)


def same_plain(a: Any, b: Any) -> bool:
    """Whether two plain values, or tuples or frozen sets of such, are equal and of one type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple) and not isinstance(a, torch.Size):
        return len(a) == len(b) and all(x is y or same_plain(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is frozenset:
        return same_elements(a, b, same_plain)
    return isinstance(a, COMPARED) and a == b


def is_plain_object(item: object) -> bool:
    """Whether an object is an instance of a class of the user's that is nothing to PyTorch, and no data."""
    return not isinstance(item, (type, *_OF_TORCH)) and is_the_users(type(item).__module__) and has_own_attributes(item)


def has_own_attributes(item: object) -> bool:
    """Whether an object can keep attributes, in a dict or in slots."""
    return hasattr(item, "__dict__") or bool(slots_of(type(item)))


_MADE: dict[int, weakref.ref[object]] = {}
"""By id: objects with values that steps have made. Each step may make others, so they are compared by what they hold."""


def note_made(item: object) -> None:
    """Remember that a step has made an object."""
    try:
        key = id(item)
        _MADE[key] = weakref.ref(item, lambda _: _MADE.pop(key, None))
    except TypeError:
        return  # of a class with __slots__: compared by identity, as it is


def is_made(item: object) -> bool:
    """Whether a step has made an object."""
    return id(item) in _MADE


def has_attributes(item: object) -> bool:
    """Whether an object is one of the user's that can be made anew from its attributes."""
    kind = type(item)
    if isinstance(item, (type, types.FunctionType, types.ModuleType, *_OF_TORCH)) or not is_the_users(kind.__module__):
        return False
    return kind.__new__ is object.__new__ and kind.__reduce_ex__ is object.__reduce_ex__


def is_plain_module(item: object) -> bool:
    """Whether an object is a module of PyTorch's that keeps all that it has in its attributes."""
    return isinstance(item, torch.nn.Module) and not isinstance(item, torch.jit.ScriptModule)


def attributes_of(item: object) -> dict[str, Any]:
    """The attributes that an object itself has, those of `__slots__` included."""
    slots = slots_of(type(item))
    return {**getattr(item, "__dict__", {}), **{name: getattr(item, name) for name in slots if hasattr(item, name)}}


def slots_of(kind: type) -> list[str]:
    """The names in the `__slots__` of a class and its bases."""
    found: list[str] = []
    for base in kind.__mro__:
        names = vars(base).get("__slots__", ())
        found += [name for name in ((names,) if isinstance(names, str) else names) if name not in ("__dict__", "__weakref__")]
    return found
