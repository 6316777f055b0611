"""Guests: objects of classes that derive from Lightning's, which from then on derive from ours as well.

Lightning itself is never imported: a class of its own is known by its name and by the module that it says it is from.
"""

from __future__ import annotations

import copyreg
import weakref
from typing import Any

_HOMES = ("lightning.pytorch.", "pytorch_lightning.", "lightning.fabric.", "lightning_fabric.")
_ADOPTED: weakref.WeakKeyDictionary[type, dict[type, type]] = weakref.WeakKeyDictionary()


def lightnings(cls: type, noun: str) -> type | None:
    """The class that Lightning calls `noun`, among a class and its bases; None where it has none."""
    bases = (base for base in cls.__mro__ if base.__name__ == noun)
    return next((base for base in bases if f"{base.__module__}.".startswith(_HOMES)), None)


def is_lightnings_own(cls: type) -> bool:
    """Whether Lightning wrote a class itself, and no user of it."""
    return f"{cls.__module__}.".startswith(_HOMES)


def welcome(guest: object, *hosts: type[Any], root: str | None = None) -> Any:
    """Let an object of a class of Lightning's be one of ours, too.

    Its class becomes a subclass of the user's, of the same name, in whose order of bases ours comes before Lightning's `root`:
    what the user overrode stays, `super()` in it reaches ours, and what only Lightning has is still there. It is pickled and
    copied as an object of the user's class.

    Args:
        guest: any object; one that is ours already, or has nothing to do with Lightning, stays what it is.
        hosts: our classes; the first whose name a base in Lightning has is chosen.
        root: the class of Lightning before which ours is asked; default: ours comes after all that Lightning wrote.

    Returns:
        The same object.

    Example:
        >>> from systolic.compat import welcome
        >>> welcome(3, dict)
        3
    """
    cls: type = type(guest)
    if not issubclass(cls, hosts):
        host = next((host for host in hosts if lightnings(cls, host.__name__) is not None), None)
        if host is not None:
            guest.__class__ = _adopted(cls, host, lightnings(cls, root) if root is not None else None)
    return guest


def _adopted(cls: type, host: type, root: type | None) -> type:
    by_host = _ADOPTED.setdefault(cls, {})
    if host not in by_host:
        meta = _Adopting if type(cls) is type else type("_Adopting", (_Adopting, type(cls)), {})
        kept = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        own = {**kept, "_systolic_guest": (cls, host, root), "__reduce_ex__": _reduced}
        by_host[host] = meta(cls.__name__, (cls, host), own)
    return by_host[host]


class _Adopting(type):
    """The class of adopted classes: it decides in which order their bases are asked."""

    def mro(cls) -> list[type]:
        """The user's classes, ours, Lightning's root, and what all of them share."""
        given = vars(cls).get("_systolic_guest")
        if given is None:  # a subclass of an adopted class, in the usual order
            return list(super().mro())
        adopted, host, root = given
        order = list(adopted.__mro__)
        behind = [base for base in root.__mro__ if base not in host.__mro__] if root is not None else []
        ours = [base for base in host.__mro__ if base not in order]
        last = order.index(behind[-1]) if behind else next(i for i, base in enumerate(order) if base in host.__mro__)
        before = [base for base in order[:last] if base not in behind and base not in host.__mro__]
        return [cls, *before, *ours, *behind, *(base for base in order if base not in before and base not in behind)]


def _reduced(guest: object, protocol: object) -> Any:
    """Reduced form of a guest, for pickle and copy: an object of the class that its user wrote."""
    cls = next(vars(base)["_systolic_guest"][0] for base in type(guest).__mro__ if "_systolic_guest" in vars(base))
    state = object.__reduce_ex__(guest, 2)[2]
    return copyreg._reconstructor, (cls, object, None), state  # pyright: ignore[reportAttributeAccessIssue]
