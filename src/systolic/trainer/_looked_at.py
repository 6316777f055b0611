"""Whether a loader's data look at what is trained: an agent that plays in the dataset, a bound method of the module.

Under Lightning such a dataset sees the weights of the instant at which its batch is wanted. Read ahead, by a thread, it would
see those of an earlier step, and which one would depend on the thread's pace.
"""

from __future__ import annotations

import dis
import functools
import gc
import logging
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from ..compiler import is_the_users, names_in
from ..core import LightningDataModule
from ..runtime import DeviceTensor
from ._data_changes import hooks_get_at

if TYPE_CHECKING:
    from ._run import Run

_OBJECTS = 10_000
"""How many objects are looked at: with those of a large dataset, the nearest."""
_ELEMENTS = 64
"""How many elements of a container: where there are more, they are samples, one like the other."""

_IN_WORKERS = frozenset({"dataset", "collate_fn"})
_NEVER_READ = frozenset({"worker_init_fn", "_iterator"})
_LEAVES = (types.ModuleType, types.CodeType, logging.Logger)
_UNCHANGED = (type, types.FunctionType, types.MethodType, tuple, frozenset)
_CONTAINERS = (list, tuple, set, frozenset, deque, dict)
_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})


def belong_together(loader: object, run: Run) -> bool:
    """Whether a training loader's batches depend on what is trained, or on what hooks between the batches may change.

    Args:
        loader: the loader, or several combined.
        run: whose training it is.
    """
    walk = _walk(run)
    return walk.finds(loader) or hooks_get_at(walk.mutable(), run)


def _walk(run: Run) -> _Walk:
    """A walk that ends at the module, a part of it, or the Trainer."""
    module = run.module
    parts = (run.trainer, *module.modules(), *module.parameters(), *module.buffers())
    return _Walk(set(map(id, parts)))


def depth_for(run: Run, loader: object) -> int:
    """How many batches an evaluation reads ahead.

    Args:
        run: the run.
        loader: where they come from.
    """
    depth = run.config.prefetch_batches
    return 0 if depth and run.placement is not None and _walk(run).finds(loader) else depth


class _Walk:
    """A walk over Python objects, the nearest first, that calls no code of theirs.

    Args:
        wanted: ids of the objects that end it.
    """

    def __init__(self, wanted: set[int]) -> None:
        self._wanted = wanted
        self._seen: dict[int, object] = {}
        self._copied: list[object] = []
        self._asks_for_trainer = self._has_datamodule = False

    def finds(self, root: object) -> bool:
        """Whether one of the objects is reached."""
        waiting: deque[object] = deque([root])
        while waiting and len(self._seen) < _OBJECTS:
            item = waiting.popleft()
            if id(item) in self._wanted or type(item) is DeviceTensor:
                return True
            # a dict of numbers is not tracked, nor is an array
            followed = gc.is_tracked(item) or type(item) in (dict, np.ndarray)
            if (
                id(item) in self._seen
                or not followed
                or any(item is one for one in self._copied)
                or issubclass(type(item), _LEAVES)
            ):
                continue
            self._seen[id(item)] = item  # kept: another object could get its id
            waiting.extend(self._inside(item))
        return self._asks_for_trainer and self._has_datamodule

    def mutable(self) -> dict[int, object]:
        """The objects that were found and that may be changed, by id."""
        return {key: item for key, item in self._seen.items() if not issubclass(type(item), _UNCHANGED)}

    def _inside(self, item: Any) -> Iterable[object]:
        """Objects that an object holds."""
        cls = type(item)
        if issubclass(cls, torch.Tensor):
            return ()
        if cls is types.FunctionType:
            return self._variables(item)
        if cls is types.MethodType and issubclass(type(item.__self__), LightningDataModule):
            return (item.__self__, *_named_methods(type(item.__self__), item.__func__))
        if cls is weakref.ref:
            return (item(),)
        if issubclass(cls, type):
            return (*item.__bases__, *vars(item).values()) if is_the_users(item.__module__) else ()
        if issubclass(cls, DataLoader):
            return self._of_loader(item)
        if issubclass(cls, LightningDataModule):
            self._has_datamodule = True
            return [value for name, value in vars(item).items() if name != "trainer"]
        if cls in (list, tuple, set, frozenset, deque):
            return islice(item, _ELEMENTS)
        if cls is dict:
            return (part for pair in islice(item.items(), _ELEMENTS) for part in pair)
        return islice(gc.get_referents(item), _ELEMENTS if issubclass(cls, _CONTAINERS) else None)

    def _of_loader(self, loader: DataLoader[Any]) -> list[object]:
        """Parts of a DataLoader that this process uses: its workers have copies of the dataset."""
        left_out = _NEVER_READ
        if loader.num_workers:
            left_out = left_out | _IN_WORKERS
            self._copied.append(loader.dataset)  # samplers refer to it
        return [type(loader), *(value for name, value in vars(loader).items() if name not in left_out)]

    def _variables(self, function: types.FunctionType) -> Iterator[object]:
        """The variables and defaults that a function has."""
        yield from (function.__defaults__, function.__kwdefaults__, vars(function), function.__closure__)
        if is_the_users(function.__module__):
            self._asks_for_trainer |= "trainer" in names_in(function.__code__)
            yield from (function.__globals__.get(name) for name in _globals_of(function.__code__))


def _named_methods(cls: type, function: Any) -> Iterator[object]:
    """A method, and those of its class that it names, by whatever detour."""
    waiting, seen = [function], {function}
    while waiting:
        method = waiting.pop()
        yield method
        if type(method) is types.FunctionType:  # nobody's decorator has put another callable in its place
            found = [vars(base).get(name) for name in names_in(method.__code__) for base in cls.__mro__]
            named = {one for one in found if type(one) is types.FunctionType} - seen
            waiting += named
            seen |= named


@functools.cache
def _globals_of(code: types.CodeType) -> frozenset[str]:
    """The names that code looks up as global variables, its inner functions included."""
    own = {one.argval for one in dis.get_instructions(code) if one.opname in _GLOBAL}
    return frozenset(own).union(*(_globals_of(inner) for inner in code.co_consts if type(inner) is types.CodeType))
