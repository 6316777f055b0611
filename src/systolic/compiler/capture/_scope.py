"""The variables that a function reaches by name."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .._errors import is_user_frame
from ._hook_scope import places_of_hooks
from ._module_scope import Place, names_in, variables_of_modules
from ._object_graph import is_record
from ._plain_objects import has_own_attributes
from ._variables import BoundArguments, Defaults, Variables, cells_of, own_attributes


class Scope(Variables):
    """Variables by name. Reading and writing go to the variables themselves, wherever they are.

    Attributes:
        places: by name: a dict with the key in it, or a closure's cell with None.
    """

    def __init__(self, places: dict[str, Place]) -> None:
        self.places = places

    def __getitem__(self, name: str) -> Any:
        holder, key = self.places[name]
        return holder.cell_contents if key is None else holder[key]

    def __setitem__(self, name: str, value: object) -> None:
        holder, key = self.places[name]
        if key is None:
            holder.cell_contents = value
        else:
            holder[key] = value

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def scope_with_globals(
    roots: dict[str, Any],
    module: nn.Module,
    guests: Sequence[tuple[str, object, Sequence[Any]]] = (),
    between: Collection[str] = (),
) -> Scope:
    """Objects by name, together with the global variables that the methods of a module mention.

    Args:
        roots: the objects.
        module: its methods and those of its submodules are read, where their classes are the user's.
        guests: other objects of which some methods run in the step: name, object, methods.
        between: names of methods of modules that run between the steps.
    """
    places = {**_fixed(roots), **variables_of_modules(module, between)}
    for name, owner, hooks in guests:
        places |= places_of_hooks(name, owner, hooks)
    return Scope(places)


def scope_of(function: Callable[..., Any], given: Mapping[str, object] | None = None) -> Scope:
    """Scope of a function: its closure, the globals that it and its helper functions mention, defaults, `self`.

    Args:
        function: the function.
        given: objects among its arguments, by name.
    """
    places = _places(function, set())
    for name, value in (given or {}).items():
        places |= _fixed({name: _walkable(value)})
        if isinstance(value, nn.Module):
            places |= variables_of_modules(value)
    return Scope(places)


def _places(function: object, seen: set[int]) -> dict[str, Place]:
    if isinstance(function, functools.partial):
        bound = BoundArguments(function)
        places: dict[str, Place] = {f"argument{i}": (bound, str(i)) for i in range(len(function.args))}
        return {**_places(function.func, seen), **places, **_fixed(function.keywords)}
    if isinstance(function, nn.Module):
        return {**_fixed({"module": function}), **variables_of_modules(function)}
    if inspect.ismethod(function):
        return {**_fixed({"self": _walkable(function.__self__)}), **_places(function.__func__, seen)}
    if inspect.isfunction(function):
        return _variables(function, seen)
    return _fixed({"self": _walkable(function)})


def _fixed(values: dict[str, Any]) -> dict[str, Place]:
    return {name: (values, name) for name in values}


def _walkable(owner: object) -> Any:
    """An object in a form that an object graph looks into: an instance of any other class as its attributes."""
    known = isinstance(owner, (nn.Module, torch.optim.Optimizer)) or is_record(owner)
    return owner if known or not has_own_attributes(owner) else own_attributes(owner)


def _variables(function: types.FunctionType, seen: set[int]) -> dict[str, Place]:
    if id(function) in seen:
        return {}
    seen.add(id(function))
    names = set(names_in(function.__code__)) & function.__globals__.keys()
    found: dict[str, Place] = {name: (function.__globals__, name) for name in sorted(names)}
    found |= {name: (cell, None) for name, cell in cells_of(function)}
    defaults = Defaults(function)
    found |= {name: (defaults, name) for name in defaults.names}
    found |= _fixed(function.__kwdefaults__ or {})
    found = {name: place for name, place in found.items() if _matters(Scope({name: place})[name])}
    for name, place in list(found.items()):
        helper = Scope({name: place})[name]
        if callable(helper) and not inspect.isfunction(helper):
            helper = inspect.unwrap(helper)  # a compiled function is called as what it compiles
        if inspect.isfunction(helper) and is_user_frame(helper.__code__.co_filename):
            found |= {f"{name}.{inner}": where for inner, where in _places(helper, seen).items()}
    return found


def _matters(value: object) -> bool:
    return not (inspect.ismodule(value) or inspect.isclass(value))
