"""Instances of classes that extend Python's containers (`class Prediction(OrderedDict)`): made anew with other contents."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

from .._users import is_the_users
from ._plain_objects import slots_of

_BASES: tuple[type, ...] = (OrderedDict, defaultdict, dict, list, deque, set)


def base_of(item: object) -> type | None:
    """The container of Python's that the class of an object extends; None for other objects, and for those themselves."""
    kind = type(item)
    if kind in _BASES:
        return None
    return next((base for base in kind.__mro__ if base in _BASES), None)


def is_the_users_container(item: object) -> bool:
    """Whether an object is of a class of the user's that extends a container."""
    return base_of(item) is not None and is_the_users(type(item).__module__)


def is_own_dict(item: object) -> bool:
    """Whether an object's attributes are its entries (`self.__dict__ = self`, as classes of settings have it)."""
    return isinstance(item, dict) and getattr(item, "__dict__", None) is item


def contents_of(item: object, base: type) -> dict[Any, Any] | list[Any]:
    """The entries or elements of a container; its class may compute others, or forbid what changes them."""
    own: Any = base
    return dict(own.items(item)) if issubclass(base, dict) else list(own.__iter__(item))


def made_empty(like: object, base: type) -> object:
    """An object of the same class that holds nothing; no code of the class runs."""
    own: Any = base
    made = own.__new__(type(like))
    if isinstance(like, deque):
        deque.__init__(made, (), like.maxlen)
    if isinstance(like, defaultdict):
        made.default_factory = like.default_factory
    return made


def put_in(made: object, base: type, contents: dict[Any, Any] | list[Any]) -> None:
    """Fill an object that is empty."""
    own: Any = base
    if isinstance(contents, dict):
        for key, value in contents.items():
            own.__setitem__(made, key, value)
    elif base is set:
        own.update(made, contents)
    else:
        own.extend(made, contents)


def give_attributes(made: object, attributes: dict[str, Any] | None) -> None:
    """Set attributes of an object, also where its class forbids it, as frozen dataclasses do; None: they are its entries."""
    if attributes is None:
        object.__setattr__(made, "__dict__", made)
        return
    own, slots = getattr(made, "__dict__", None), set(slots_of(type(made)))
    for name, value in attributes.items():
        if own is None or name in slots:
            object.__setattr__(made, name, value)
        else:
            own[name] = value
