"""Objects that a step turned out to use besides what its engine was told of."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, MutableMapping
from typing import Any

from ..capture import Captured, ObjectGraph, ObjectIsReadError, ObjectsHoldValuesError, Path, Scope
from ._other_objects import lists_in_place


class MoreWatched:
    """The objects and attributes that are looked at before every step since a trace has used them.

    Attributes:
        opened: by id: objects of the user's classes of which more counts than numbers: these attributes, or None for all.
        read_places: where lists stand that steps append to and read.
    """

    def __init__(self) -> None:
        self.opened: dict[int, frozenset[str] | None] = {}
        self._kept_alive: list[object] = []  # an id may be another object's later
        self._others: dict[str, object] = {}
        self._followed: dict[int, weakref.ref[object]] = {}
        self.read_places: set[Path] = set()

    def note(self, error: ObjectsHoldValuesError | ObjectIsReadError) -> None:
        """Take up what a trace ended with."""
        if isinstance(error, ObjectIsReadError):
            names = (f"{error.name}{number}" for number in itertools.count(1))
            self._others[next(name for name in names if name not in self._others)] = error.watched
            return
        before = dict(self.opened)
        for item, attributes in error.attributes:
            known = self.opened.get(id(item), frozenset())
            self.opened[id(item)] = None if known is None else known | attributes
        self.opened |= {id(item): None for item in error.objects}
        assert self.opened != before, "what is watched is not asked for again"
        self._kept_alive += [*error.objects, *(item for item, _ in error.attributes)]

    def follow(self, captured: Captured, now: ObjectGraph, appended: set[int], read: Collection[int]) -> bool:
        """Watch as much of an object or a list as of the one in whose place it stands; returns whether there is such a one.

        Args:
            captured: a step, with the objects as they were.
            now: the objects as they are.
            appended: ids of lists that are only appended to; gets those of others in their places.
            read: ids of lists that steps turned out to read.
        """
        lists = lists_in_place(captured, now) - set(read)
        appended |= lists
        before = {**captured.objects.values, **dict(captured.objects.objects())}
        places = ((item, now.values.get(path)) for path, item in before.items() if id(item) in self.opened)
        found = [(item, other) for item, other in places if type(other) is type(item) and id(other) not in self.opened]
        for item, other in found:
            self.opened[id(other)] = self.opened[id(item)]
            self._forget_with(other)
        return bool(found or lists)

    def note_read(self, objects: ObjectGraph, lists: Collection[int]) -> None:
        """Remember where lists stand that a step turned out to read: another one in such a place is read, too."""
        self.read_places |= {path for number, path in objects.places().items() if number in lists}

    def only_appended(self, captured: Captured) -> set[int]:
        """Ids of the lists that a step appends to, but for those in places of which one was read."""
        places = captured.objects.places()
        return {number for number in captured.appended if places.get(number) not in self.read_places}

    def _forget_with(self, item: object) -> None:
        """Forget an object when it is gone: there may be one for each step."""
        key = id(item)

        def forget(_: weakref.ref[object]) -> None:
            self.opened.pop(key, None)
            self._followed.pop(key, None)

        try:
            self._followed[key] = weakref.ref(item, forget)
        except TypeError:  # of a class with __slots__
            self._kept_alive.append(item)

    def added_to(self, roots: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The objects that a step uses, with the other ones."""
        if self._others:
            assert isinstance(roots, Scope), "who watches more than the roots gives them as variables"
            roots.places |= {name: (self._others, name) for name in self._others}
        return roots
