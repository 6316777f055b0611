"""Batches that are objects: of a user's class, of torch_geometric, and others whose tensors are attributes."""

from __future__ import annotations

import copy
import functools
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from ..utilities._containers import Opened

_NO_BATCHES = (torch.Tensor, nn.Module, torch.optim.Optimizer, type, FunctionType, MethodType, ModuleType)
_STORE = "torch_geometric.data"
# of a store of torch_geometric: what belongs to the object that it is of, and does not change from batch to batch
_PARENTS = frozenset({"_parent", "_key", "_cached_attr"})


def open_object(value: object) -> Opened | None:
    """Take an object with tensors for attributes apart; None where it is none, or cannot be rebuilt.

    As Lightning moves whatever has a method `to` to a device, such an object is data, and so is one that has tensors.
    """
    kind = type(value)
    if isinstance(value, _NO_BATCHES) or kind.__module__ == "builtins":
        return None
    if _is_graph(kind):
        return _open_graph(value)
    own = _attributes(value)
    if not own or any(one is value for one in own.values()):
        return None
    if not any(map(_has_tensors, own.values())) and not callable(getattr(kind, "to", None)):
        return None
    names = tuple(own)
    # of a user's class it might ask for arguments
    new: Any = SimpleNamespace.__new__ if isinstance(value, SimpleNamespace) else object.__new__

    def rebuild(values: list[Any]) -> Any:
        clone = new(kind)
        for name, one in zip(names, values, strict=True):
            object.__setattr__(clone, name, one)
        return clone

    return Opened(names, list(own.values()), rebuild)


def _attributes(value: object) -> dict[str, Any]:
    """The attributes that an object has for itself, in `__slots__`, too."""
    names = (name for base in type(value).__mro__ for name in _slots(base))
    return {name: getattr(value, name) for name in names if hasattr(value, name)} | getattr(value, "__dict__", {})


def _slots(kind: type) -> tuple[str, ...]:
    found = vars(kind).get("__slots__", ())
    named = (found,) if isinstance(found, str) else tuple(found)
    return tuple(name for name in named if not name.startswith("__"))


def _has_tensors(value: object) -> bool:
    """Whether a value is a tensor, or a list or dict with one."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(one, torch.Tensor) for one in inner)


@functools.cache
def _is_graph(kind: type) -> bool:
    """Whether a class is torch_geometric's, or made of one of its: its objects keep their attributes in stores."""
    return any(base.__module__.startswith(_STORE) for base in kind.__mro__) and hasattr(kind, "stores")


def _open_graph(value: Any) -> Opened:
    """A graph, or a batch of graphs; besides its attributes the places at which the graphs of a batch begin."""
    skeleton = copy.copy(value)
    children: list[dict[str, Any]] = []
    for store in skeleton.stores:
        own = {name: one for name, one in vars(store).items() if name not in _PARENTS}
        children.append(own)
        vars(store).update(dict.fromkeys(own))

    def rebuild(values: list[Any]) -> Any:
        clone = copy.copy(skeleton)
        for store, own in zip(clone.stores, values, strict=True):
            vars(store).update(own)
        return clone

    return Opened(tuple(store._key for store in skeleton.stores), children, rebuild)
