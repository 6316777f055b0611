"""Random generators of the user's own, as `self.rng = np.random.default_rng(0)`: a step draws from them what it draws in eager.

Their methods are C, and cannot be watched. While a step is traced, stand-ins are where the step's objects keep generators; for
other threads, as the one of a dataset that shares one, a stand-in is the generator.
"""

from __future__ import annotations

import copy
import functools
import random
import types
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch

from .._capture_thread import is_capture_thread
from ._object_graph import ObjectGraph, entries
from ._randomness import GENERATOR_OF_RANDOM

Drawn = Callable[[Any, str, tuple[Any, ...], dict[str, Any]], Any]
"""Notes a call of a generator's method, and gives its result."""

_KINDS = (random.Random, np.random.RandomState, np.random.Generator)
_NOT_OPENED = frozenset({"torch", "numpy", "jax", "jaxlib", "systolic", "lightning", "pytorch_lightning", "torchmetrics"})
_MAX_OBJECTS = 4096
"""Of so many objects that the step's objects hold it is looked whether they have generators."""
_MAX_ELEMENTS = 64


@contextmanager
def standing_in(objects: ObjectGraph, drawn: Drawn) -> Iterator[list[torch.Generator]]:
    """Inside the block, stand-ins are in the places of generators; what a step draws from them is noted.

    Those of PyTorch, which are arguments of ops, are noted there: the block is told which there are.

    Args:
        objects: what the step uses.
        drawn: gets each call of the thread that captures.
    """
    global _drawn
    stand_ins: dict[int, Any] = {}
    places: list[tuple[Any, Any, Any, Any]] = []
    of_torch: list[torch.Generator] = []
    for container, key, value in list(_places(objects)):
        if isinstance(value, torch.Generator):
            of_torch.append(value)
            continue
        owner = _of_method(value)
        generator = _original(value if owner is None else owner)
        if id(generator) not in stand_ins:
            stand_ins[id(generator)] = _stand_in(generator)
        other = stand_ins[id(generator)]
        places.append((container, key, value, other if owner is None else getattr(other, value.__name__)))
    before, _drawn = _drawn, drawn
    for container, key, _, other in places:
        _put(container, key, other)
    try:
        yield of_torch
    finally:
        _drawn = before
        for container, key, value, other in places:
            if dict(entries(container)).get(key) is other:
                _put(container, key, value)


_drawn: Drawn | None = None
"""What notes the calls of the trace that is made; a step may keep a stand-in, or a method of one, for later steps."""


def _original(generator: Any) -> Any:
    return vars(generator)["original"] if isinstance(generator, _StandIn) else generator


def _of_method(value: object) -> Any:
    """The generator whose method a value is; None for anything else."""
    owner = getattr(value, "__self__", None) if isinstance(value, types.MethodType | types.BuiltinMethodType) else None
    return owner if is_own_generator(owner) else None


def _places(objects: ObjectGraph) -> Iterator[tuple[Any, Any, Any]]:
    """The places of generators, and of methods of generators: container, key, what is there."""
    seen: set[int] = set()
    opened = [container for _, container in objects.every_container()]
    for container in opened:  # which grows
        if id(container) in seen or len(seen) > _MAX_OBJECTS:
            continue
        seen.add(id(container))
        for key, value in entries(container):
            if is_drawn_from(value) or isinstance(value, torch.Generator):
                yield container, key, value
            elif (inner := _opened(value)) is not None:
                opened.append(inner)


def _opened(value: object) -> Any:
    """A container that an object is, or has its attributes in; None where nobody looks into it."""
    if type(value) in (list, dict):
        return value if len(cast(list[Any], value)) <= _MAX_ELEMENTS else None
    kind = type(value)
    if issubclass(kind, type | types.ModuleType | types.FunctionType) or kind.__module__.partition(".")[0] in _NOT_OPENED:
        return None
    try:
        return object.__getattribute__(value, "__dict__")  # proxies of packages answer for what they stand for
    except AttributeError:
        return None


def is_drawn_from(value: object) -> bool:
    """Whether an object is a generator of the user's own, or a method of one that is kept."""
    return is_own_generator(value) or _of_method(value) is not None


def is_own_generator(value: object) -> bool:
    """Whether an object is a generator of the user's own: those behind `random` and `numpy.random` are watched otherwise."""
    if not issubclass(type(value), _KINDS) or isinstance(value, random.SystemRandom):
        return False
    return value is not np.random.mtrand._rand and value is not GENERATOR_OF_RANDOM  # pyright: ignore[reportAttributeAccessIssue]


def _put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, dict):
        dict.__setitem__(container, key, value)
    else:
        cast(MutableMapping[Any, Any], container)[key] = value


class _StandIn:
    """Base of all stand-ins."""


def _stand_in(original: Any) -> Any:
    kind = _stand_in_kind(next(kind for kind in _KINDS if isinstance(original, kind)))
    made = kind.__new__(kind)  # one of `random` is not to be seeded, which is a method, too
    if kind.takes is not None:
        made.__init__(getattr(original, kind.takes))
    vars(made).update(original=original)
    return made


@functools.cache
def _stand_in_kind(kind: type) -> Any:
    """The class of stand-ins for generators of a kind, so that `isinstance` holds for them."""
    takes = {np.random.RandomState: "_bit_generator", np.random.Generator: "bit_generator"}.get(kind)
    methods = {name: _method(name) for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}
    copies = {"__reduce__": lambda self: vars(self)["original"].__reduce__(), "__deepcopy__": _copied, "takes": takes}
    return type(f"StandIn{kind.__name__}", (_StandIn, kind), {**methods, **copies})


def _copied(self: Any, memo: dict[int, Any]) -> Any:
    return copy.deepcopy(vars(self)["original"], memo)


def _method(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        original = vars(self)["original"]
        if _drawn is not None and is_capture_thread():
            return _drawn(original, name, args, kwargs)
        return getattr(original, name)(*args, **kwargs)

    method.__name__ = name
    return method
