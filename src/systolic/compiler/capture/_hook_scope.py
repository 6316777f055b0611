"""Scope of the hooks of an object that run in a step: its attributes, the variables around them, globals."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from .._users import is_the_users
from ._module_scope import Place, is_large, names_in, variables_of
from ._object_graph import Attributes
from ._plain_objects import has_own_attributes
from ._variables import cells_of

_IGNORED = (types.ModuleType, types.FunctionType, types.MethodType, type)


def places_of_hooks(name: str, owner: object, hooks: Sequence[Any]) -> dict[str, Place]:
    """The variables and attributes that some hooks may read or write, by name.

    Of the owner's attributes only those count that the hooks, and the methods and functions which they call, mention: what
    other hooks keep there, which run between the steps, may change without a new trace.

    Args:
        name: what to call the owner.
        owner: the object that the hooks belong to.
        hooks: its bound methods, or what was put in their places.
    """
    functions = list(_functions(owner, hooks))
    if not functions:
        return {}
    names = frozenset(name for function in functions for name in names_in(function.__code__))
    attributes: dict[str, Any] = {name: owner if isinstance(owner, nn.Module) else Attributes(owner, names)}
    found: dict[str, Place] = {name: (attributes, name)} if has_own_attributes(owner) else {}
    for function in functions:
        if is_the_users(function.__module__):
            found |= variables_of(function)
        for variable, cell in cells_of(function):
            if not isinstance(cell.cell_contents, _IGNORED) and not is_large(cell.cell_contents):
                found[f"{function.__qualname__}.{variable}"] = (cell, None)
    return found


def _functions(owner: object, hooks: Sequence[Any]) -> Iterator[types.FunctionType]:
    """The hooks' functions, and those that they may call: methods of the owner's, and functions in their closures."""
    waiting = [_function(hook) for hook in hooks]
    seen: set[types.FunctionType | None] = {None}
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        yield function
        waiting += [_function(inspect.getattr_static(owner, name, None)) for name in names_in(function.__code__)]
        waiting += [_function(cell.cell_contents) for _, cell in cells_of(function)]
        helpers = [_function(function.__globals__.get(name)) for name in names_in(function.__code__)]
        waiting += [helper for helper in helpers if helper is not None and is_the_users(helper.__module__)]


def _function(member: object) -> types.FunctionType | None:
    if isinstance(member, property):
        member = member.fget
    while isinstance(member, functools.partial):
        member = member.func
    member = getattr(member, "__func__", member)  # of methods, and of static and class methods
    return member if isinstance(member, types.FunctionType) else None
