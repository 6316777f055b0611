"""Objects of which a traced step calls methods that store something, such as a logger's experiment."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._host_calls import recorded


class DeferredObject:
    """Stands for an object of which a traced step calls methods that store something, such as a logger's experiment.

    Args:
        target: the object.
        before: called before each of the calls that were put off.
        path: the attributes that lead from it to this one.
    """

    def __init__(self, target: object, before: Callable[[], None], path: tuple[str, ...] = ()) -> None:
        self.__dict__.update(_target=target, _before=before, _path=path)

    def __getattr__(self, name: str) -> Any:
        path = (*self.__dict__["_path"], name)
        value = _at(self.__dict__["_target"], path)
        plain = isinstance(value, str | int | float | bool | type(None))
        return value if plain else DeferredObject(self.__dict__["_target"], self.__dict__["_before"], path)

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        held = self.__dict__
        recorded(_called, held["_before"], held["_target"], held["_path"], *args, **kwargs)

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class of the object, for `isinstance`."""
        return type(_at(self.__dict__["_target"], self.__dict__["_path"]))


def _called(before: Callable[[], None], target: object, path: tuple[str, ...], *args: Any, **kwargs: Any) -> None:
    before()
    _at(target, path)(*args, **kwargs)


def _at(target: object, path: tuple[str, ...]) -> Any:
    return functools.reduce(getattr, path, target)
