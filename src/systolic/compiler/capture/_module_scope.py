"""The global variables that the methods of modules mention: a traced graph freezes them like attributes (C5)."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from torch import nn

from .._users import is_the_users
from ._object_graph import is_record

Place = tuple[Any, str | None]
"""Where a variable is: a dict with the key in it, or a closure's cell with None."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# a larger table is data; comparing it before every step would cost more than it protects
_MAX_ENTRIES = 256


def globals_of_modules(module: nn.Module) -> dict[str, Place]:
    """Plain values, and small containers, that the user's methods read from their files' globals.

    Args:
        module: it and its submodules are looked at; classes of installed packages are not, their globals are constants.
    """
    found: dict[str, Place] = {}
    seen: set[int] = set()
    for cls in dict.fromkeys(cls for part in module.modules() for cls in type(part).__mro__):
        if is_the_users(cls.__module__):
            for function in _functions(cls):
                found |= _globals(function, seen)
    return found


def globals_of(function: types.FunctionType) -> dict[str, Place]:
    """The same for one function and the helper functions that it mentions."""
    return _globals(function, set())


def _functions(cls: type) -> Iterator[types.FunctionType]:
    for member in vars(cls).values():
        parts = (member.fget, member.fset) if isinstance(member, property) else (getattr(member, "__func__", member),)
        yield from (part for part in parts if isinstance(part, types.FunctionType))


def _globals(function: types.FunctionType, seen: set[int]) -> dict[str, Place]:
    if id(function) in seen:
        return {}
    seen.add(id(function))
    variables = function.__globals__
    found: dict[str, Place] = {}
    for name in sorted(set(names_in(function.__code__)) & variables.keys()):
        value = variables[name]
        if isinstance(value, types.FunctionType) and is_the_users(value.__module__):
            found |= _globals(value, seen)
        elif _is_watched(value):
            found[f"{function.__module__}.{name}"] = (variables, name)
    return found


def _is_watched(value: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return not is_large(value)
    return isinstance(value, (*_PLAIN, types.SimpleNamespace)) or is_record(value)


def is_large(value: object) -> bool:
    """Whether a value is a table with so many entries that it is data."""
    return isinstance(value, dict | list | tuple) and len(value) > _MAX_ENTRIES


def names_in(code: types.CodeType) -> Iterator[str]:
    """Every global that some code may mention, that of its inner functions included."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
