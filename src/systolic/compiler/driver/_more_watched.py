"""Objects that a step turned out to use besides what its engine was told of."""

from __future__ import annotations

import itertools
from collections.abc import MutableMapping
from typing import Any

from ..capture import Attributes, ObjectIsReadError, ObjectsHoldValuesError, Scope


class MoreWatched:
    """The objects and attributes that are looked at before every step since a trace has used them.

    Attributes:
        opened: by id: objects of the user's classes of which more counts than numbers: these attributes, or None for all.
    """

    def __init__(self) -> None:
        self.opened: dict[int, frozenset[str] | None] = {}
        self._kept_alive: list[object] = []  # an id may be another object's later
        self._others: dict[str, Attributes] = {}

    def note(self, error: ObjectsHoldValuesError | ObjectIsReadError) -> None:
        """Take up what a trace ended with."""
        if isinstance(error, ObjectIsReadError):
            names = (f"{error.name}{number}" for number in itertools.count(1))
            self._others[next(name for name in names if name not in self._others)] = error.attributes
            return
        before = dict(self.opened)
        for item, attributes in error.attributes:
            known = self.opened.get(id(item), frozenset())
            self.opened[id(item)] = None if known is None else known | attributes
        self.opened |= {id(item): None for item in error.objects}
        assert self.opened != before, "what is watched is not asked for again"
        self._kept_alive += [*error.objects, *(item for item, _ in error.attributes)]

    def added_to(self, roots: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """The objects that a step uses, with the other ones."""
        if self._others:
            assert isinstance(roots, Scope), "who watches more than the roots gives them as variables"
            roots.places |= {name: (self._others, name) for name in self._others}
        return roots
