"""Variables, attributes and arguments that no dict holds, as mappings: a walk looks there and puts things back."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator, MutableMapping
from typing import Any

from ._plain_objects import attributes_of, slots_of


class Variables(MutableMapping[str, Any]):
    """Variables by name that are elsewhere; they can be set, and never go away."""

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"the variable {name} cannot be removed from outside")

    def clear(self) -> None:
        """Nothing: the variables stay, `update` gives them their values."""


class EnclosingVariables(Variables):
    """The variables that a function has from the one that made it."""

    def __init__(self, function: types.FunctionType) -> None:
        self._cells = dict(cells_of(function))

    def __getitem__(self, name: str) -> Any:
        return self._cells[name].cell_contents

    def __setitem__(self, name: str, value: object) -> None:
        self._cells[name].cell_contents = value

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)


class ClassAttributes(Variables):
    """The attributes that a class itself has."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __getitem__(self, name: str) -> Any:
        return vars(self._cls)[name]

    def __setitem__(self, name: str, value: object) -> None:
        if vars(self._cls).get(name) is not value:  # to set one makes Python forget which methods the class has
            setattr(self._cls, name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self._cls))

    def __len__(self) -> int:
        return len(vars(self._cls))


class SlotAttributes(MutableMapping[str, Any]):
    """The attributes of an object whose class has `__slots__`."""

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __getitem__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self._owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: object) -> None:
        object.__setattr__(self._owner, name, value)  # of frozen dataclasses, too

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(attributes_of(self._owner))

    def __len__(self) -> int:
        return len(attributes_of(self._owner))


def own_attributes(owner: object) -> MutableMapping[str, Any]:
    """The attributes of an object that has some, to be read and set there."""
    return SlotAttributes(owner) if slots_of(type(owner)) else vars(owner)


class Defaults:
    """Defaults of a function's positional parameters, by name; a tuple, in whose place another one is put to write to it."""

    def __init__(self, function: types.FunctionType) -> None:
        self._function = function
        count = function.__code__.co_argcount
        self.names = function.__code__.co_varnames[count - len(function.__defaults__ or ()) : count]

    def __getitem__(self, name: str) -> Any:
        return (self._function.__defaults__ or ())[self.names.index(name)]

    def __setitem__(self, name: str, value: object) -> None:
        self._function.__defaults__ = _with(self._function.__defaults__ or (), self.names.index(name), value)


class BoundArguments(Variables):
    """Positional arguments of a `functools.partial`, by number."""

    def __init__(self, bound: functools.partial[Any]) -> None:
        self._bound = bound

    def __getitem__(self, place: str) -> Any:
        return self._bound.args[int(place)]

    def __setitem__(self, place: str, value: object) -> None:
        bound = self._bound
        if bound.args[int(place)] is not value:
            state = (bound.func, _with(bound.args, int(place), value), bound.keywords, bound.__dict__)
            bound.__setstate__(state)  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[str]:
        return map(str, range(len(self._bound.args)))

    def __len__(self) -> int:
        return len(self._bound.args)


def _with(values: tuple[Any, ...], place: int, value: object) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def cells_of(function: types.FunctionType) -> Iterator[tuple[str, types.CellType]]:
    """The variables of enclosing functions that a function uses, by name."""
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if cell != types.CellType():  # a variable that has no value yet
            yield variable, cell
