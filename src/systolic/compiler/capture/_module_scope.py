"""Variables that the methods of modules mention and no object holds: globals, closures, attributes of classes.

A traced graph freezes them like attributes of objects (C5), and what a step appends to them is appended after every step.
"""

from __future__ import annotations

import argparse
import functools
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from .._users import is_the_users
from ._object_graph import is_record
from ._own_generators import is_drawn_from
from ._plain_objects import CALLED, PLAIN, is_plain_object
from ._tensor_variables import TensorVariables
from ._variables import ClassAttributes, EnclosingVariables, cells_of

Place = tuple[Any, str | int | None]
"""Where a variable is: a mapping or list with the key in it, or a closure's cell with None."""

# a larger table is data; comparing it before every step would cost more than it protects
_MAX_ENTRIES = 256


def variables_of_modules(module: nn.Module, between: Collection[str] = ()) -> dict[str, Place]:
    """Plain values, and small containers, that the user's methods read from globals, closures and classes.

    Args:
        module: it and its submodules are looked at; classes of installed packages are not, theirs are constants.
        between: names of methods that run between the steps. What they alone mention may change without a new trace.
    """
    found: dict[str, Place] = {}
    seen: set[int] = set()
    mentioned: set[str] = set()
    classes = dict.fromkeys(cls for part in module.modules() for cls in type(part).__mro__)
    own = [cls for cls in classes if is_the_users(cls.__module__)]
    for function in _functions_of_steps(classes, own, between):
        found |= _variables(function, seen)
        mentioned.update(names_in(function.__code__))
    for cls in own:
        attributes = ClassAttributes(cls)
        for name in sorted(mentioned & vars(cls).keys()):
            if _is_watched(attributes[name]):
                found[f"{cls.__module__}.{cls.__qualname__}.{name}"] = (attributes, name)
    return found


def _functions_of_steps(classes: Iterable[type], own: Iterable[type], between: Collection[str]) -> Iterator[types.FunctionType]:
    """The functions of the user's classes, without those between the steps that no other function calls."""
    called = {name for cls in classes for method, names in _mentions(cls) if method not in between for name in names}
    while more := {n for cls in own for m, names in _mentions(cls) if m in called for n in names} - called:
        called |= more
    for cls in own:
        for name, member in vars(cls).items():
            if name not in between or name in called:
                yield from _functions(member)


def _mentions(cls: type) -> tuple[tuple[str, frozenset[str]], ...]:
    """By name: what the methods of a class mention, in text (`getattr`) included."""
    return _mentions_now(cls) if is_the_users(cls.__module__) else _mentions_of_installed(cls)


def _mentions_now(cls: type) -> tuple[tuple[str, frozenset[str]], ...]:
    return tuple(
        (name, frozenset([*names_in(function.__code__), *_texts(function.__code__)]))
        for name, member in vars(cls).items()
        for function in _functions(member)
    )


# the methods of nn.Module and its like are many, and stay; in a notebook a class of the user's gets others
_mentions_of_installed = functools.cache(_mentions_now)


def _texts(code: types.CodeType) -> Iterator[str]:
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _texts(constant)
        elif isinstance(constant, str):
            yield constant


def variables_of(function: types.FunctionType) -> dict[str, Place]:
    """The same for one function and the helper functions that it mentions."""
    return _variables(function, set())


def _functions(member: object) -> Iterator[types.FunctionType]:
    """The functions of an entry of a class: a method, or the two of a property."""
    parts = (member.fget, member.fset) if isinstance(member, property) else (getattr(member, "__func__", member),)
    yield from (part for part in parts if isinstance(part, types.FunctionType))


def _variables(function: types.FunctionType, seen: set[int]) -> dict[str, Place]:
    if id(function) in seen:
        return {}
    seen.add(id(function))
    variables = function.__globals__
    found = _kept_by(function)
    names = set(names_in(function.__code__))
    for name in sorted(names & variables.keys()):
        found |= _variable(f"{function.__module__}.{name}", (variables, name), variables, names, seen)
    around = EnclosingVariables(function)
    for name, cell in cells_of(function):
        found |= _variable(f"{function.__qualname__}.{name}", (cell, None), around, names, seen)
    return found


def _variable(path: str, place: Place, holder: Mapping[str, Any], names: Collection[str], seen: set[int]) -> dict[str, Place]:
    """The places that count of a variable that a function mentions.

    Args:
        path: what to call it.
        place: where it is.
        holder: a mapping with its value under the last part of `path`.
        names: all that the function mentions.
        seen: ids of functions that were looked at.
    """
    name = path.rpartition(".")[2]
    value = holder[name]
    if isinstance(value, CALLED):  # which one it is counts, and what it mentions itself
        within = _variables(value, seen) if isinstance(value, types.FunctionType) and is_the_users(value.__module__) else {}
        return {path: place} | within
    if _is_watched(value):
        return {path: place}
    if isinstance(value, torch.Tensor):
        return {path: (TensorVariables(holder), name)}
    return _members(value, names, seen)


def _kept_by(function: types.FunctionType) -> dict[str, Place]:
    """The places that belong to a function itself: its attributes, and defaults that it may write to."""
    own = vars(function)
    found: dict[str, Place] = {f"{function.__qualname__}.{name}": (own, name) for name in own if _is_watched(own[name])}
    defaults = dict(enumerate(function.__defaults__ or ())) | (function.__kwdefaults__ or {})
    changing = {str(name): value for name, value in defaults.items() if isinstance(value, dict | list | set)}
    return found | {f"{function.__qualname__}({name})": (changing, name) for name in changing if _is_watched(changing[name])}


def _members(value: object, names: Collection[str], seen: set[int]) -> dict[str, Place]:
    """The variables of a file or a class of the user's that a function mentions: `settings.alpha`."""
    is_class = isinstance(value, type)
    if is_class and is_the_users(value.__module__):
        holder: Mapping[str, Any] = ClassAttributes(value)
        path = f"{value.__module__}.{value.__qualname__}"
    elif isinstance(value, types.ModuleType) and is_the_users(value.__name__):
        holder, path = vars(value), value.__name__
    else:
        return {}
    found: dict[str, Place] = {}
    for name in sorted(set(names) & holder.keys()):
        # from a file to its classes, and no further
        if not isinstance(holder[name], types.ModuleType | type if is_class else types.ModuleType):
            found |= _variable(f"{path}.{name}", (holder, name), holder, names, seen)
    return found


def _is_watched(value: object) -> bool:
    if isinstance(value, dict | list | tuple | set | frozenset):
        return not is_large(value)
    kinds = (*PLAIN, types.SimpleNamespace, argparse.Namespace, np.ndarray, torch.Generator)
    return isinstance(value, kinds) or is_drawn_from(value) or is_record(value) or is_plain_object(value)


def is_large(value: object) -> bool:
    """Whether a value is a table with so many entries that it is data."""
    return isinstance(value, dict | list | tuple | set | frozenset) and len(value) > _MAX_ENTRIES


def names_in(code: types.CodeType) -> Iterator[str]:
    """Every global that some code may mention, that of its inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
