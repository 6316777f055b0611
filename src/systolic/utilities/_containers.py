"""Opening and rebuilding containers that a batch, a collection of loaders or arguments may be made of."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ._torch_internals import SUPPORTED_NODES, tree_flatten, tree_unflatten

Rebuild = Callable[[list[Any]], Any]


class Opened(NamedTuple):
    """A container taken apart: `rebuild(new_children)` gives a container of the same kind."""

    context: Hashable  # what tells two containers of one type apart besides their children: keys, field names
    children: Sequence[Any]
    rebuild: Rebuild


def open_container(value: Any) -> Opened | None:
    """Take `value` apart, or return None when it is not a container that can be rebuilt."""
    kind = type(value)
    if kind is list:
        return Opened(len(value), value, list)
    if kind is tuple:
        return Opened(len(value), value, tuple)
    if isinstance(value, Mapping):
        return _open_registered(value) if kind in SUPPORTED_NODES and not isinstance(value, dict) else _open_mapping(value)
    if isinstance(value, tuple):
        # `_make` bypasses a `__new__` that some named tuples (PackedSequence) define with checks of their own.
        return Opened(len(value), value, getattr(kind, "_make", kind))
    if isinstance(value, list):
        return Opened(len(value), value, _list_rebuilder(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _open_dataclass(value)
    return None


def map_leaves(change: Callable[[Any], Any], value: object) -> Any:
    """The same containers, with `change(leaf)` in place of everything in them that is no container."""
    opened = open_container(value)
    if opened is None:
        return change(value)
    return opened.rebuild([map_leaves(change, child) for child in opened.children])


def _open_registered(value: Any) -> Opened:
    """Open a mapping as its package told PyTorch to: `for key in` a TensorDict goes through rows, and it has a batch size."""
    leaves, spec = tree_flatten(value, is_leaf=lambda one: one is not value)
    return Opened(repr(spec), leaves, lambda values: tree_unflatten(values, spec))


def _open_mapping(value: Mapping[Any, Any]) -> Opened:
    keys = tuple(value)
    return Opened((keys, _mapping_extras(value)), [value[key] for key in keys], _mapping_rebuilder(value, keys))


def _mapping_extras(value: Mapping[Any, Any]) -> Hashable:
    """Extras that a mapping carries besides its items, as far as they can be compared."""
    if isinstance(value, defaultdict):
        return value.default_factory
    # Unhashable attributes are left out: a tokenizer's BatchEncoding holds fresh `encodings` in every batch, and
    # comparing those by identity would make every batch look like a new structure.
    extras = getattr(value, "__dict__", {})
    own = ((name, extra) for name, extra in extras.items() if name not in value and _is_hashable(extra))
    return tuple(sorted(own, key=lambda item: item[0]))


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _mapping_rebuilder(value: Mapping[Any, Any], keys: tuple[Any, ...]) -> Rebuild:
    kind = type(value)
    if kind is dict:
        return lambda values: dict(zip(keys, values, strict=True))
    if kind is OrderedDict:
        return lambda values: OrderedDict(zip(keys, values, strict=True))
    if kind is MappingProxyType:
        return lambda values: MappingProxyType(dict(zip(keys, values, strict=True)))
    if isinstance(value, dict | UserDict):
        return _copying_rebuilder(value, keys)
    return lambda values: _construct_mapping(kind, dict(zip(keys, values, strict=True)))


def _copying_rebuilder(value: dict[Any, Any] | UserDict[Any, Any], keys: tuple[Any, ...]) -> Rebuild:
    """Rebuild by copying an emptied copy, so that attributes survive and no tensor of this batch is kept alive."""
    skeleton = copy.copy(value)
    for key in keys:
        skeleton[key] = None

    def rebuild(values: list[Any]) -> Any:
        clone = copy.copy(skeleton)
        for key, item in zip(keys, values, strict=True):
            clone[key] = item
        return clone

    return rebuild


def _construct_mapping(kind: type, items: dict[Any, Any]) -> Any:
    """A mapping of a user's own class; a plain dict where its constructor takes no mapping (as torch's collate)."""
    try:
        return kind(items)
    except TypeError:
        return items


def _list_rebuilder(value: list[Any]) -> Rebuild:
    skeleton = copy.copy(value)
    skeleton[:] = [None] * len(value)

    def rebuild(values: list[Any]) -> Any:
        clone = copy.copy(skeleton)
        clone[:] = values
        return clone

    return rebuild


def _open_dataclass(value: Any) -> Opened:
    # A field with init=False may never have been set.
    names = tuple(field.name for field in dataclasses.fields(value) if hasattr(value, field.name))
    skeleton = copy.copy(value)
    for name in names:
        object.__setattr__(skeleton, name, None)

    def rebuild(values: list[Any]) -> Any:
        # object.__setattr__ reaches frozen instances, and `__init__`/`__post_init__` must not run a second time.
        clone = copy.copy(skeleton)
        for name, item in zip(names, values, strict=True):
            object.__setattr__(clone, name, item)
        return clone

    return Opened(names, [getattr(value, name) for name in names], rebuild)
