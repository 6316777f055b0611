"""Copies of results with ordinary CPU tensors in them, within objects of the user's classes, too."""

from __future__ import annotations

from typing import Any

from ...runtime import DeviceTensor
from ...utilities._torch_internals import tree_leaves, tree_map
from ._made_containers import base_of, contents_of, give_attributes, is_own_dict, made_empty, put_in
from ._plain_objects import attributes_of, has_attributes


def with_ordinary_tensors(result: object) -> Any:
    """A result with ordinary CPU tensors in the places of those of the devices.

    Objects that hold such are copied: one may belong to the state, where the next step wants what is on the devices.
    """
    return _Copies().of(result)


class _Copies:
    """Copies by id of what was copied, so that one object stays one."""

    def __init__(self) -> None:
        self._made: dict[int, Any] = {}

    def of(self, structure: object) -> Any:
        """The copy of a structure."""
        return tree_map(self._leaf, structure)

    def _leaf(self, leaf: object) -> Any:
        if id(leaf) in self._made:
            return self._made[id(leaf)]
        if isinstance(leaf, DeviceTensor):
            self._made[id(leaf)] = leaf.cpu()
        elif type(leaf) in (set, frozenset) and _holds_tensors(leaf, set()):
            made = map(self.of, _held(leaf))
            self._made[id(leaf)] = set(made) if type(leaf) is set else frozenset(made)
        elif _is_opened(leaf) and _holds_tensors(leaf, set()):
            self._copy(leaf)
        else:
            return leaf
        return self._made[id(leaf)]

    def _copy(self, item: object) -> None:
        base = base_of(item)
        made = self._made[id(item)] = object.__new__(type(item)) if base is None else made_empty(item, base)
        if base is not None:
            put_in(made, base, self.of(contents_of(item, base)))
        give_attributes(made, None if is_own_dict(item) else self.of(attributes_of(item)))


def _is_opened(item: object) -> bool:
    return base_of(item) is not None or has_attributes(item)


def _holds_tensors(item: object, seen: set[int]) -> bool:
    if id(item) in seen:
        return False
    seen.add(id(item))
    leaves = tree_leaves(_held(item))
    return any(isinstance(one, DeviceTensor) or (_is_opened(one) and _holds_tensors(one, seen)) for one in leaves)


def _held(item: object) -> list[Any]:
    """All that an object holds."""
    if isinstance(item, set | frozenset) and base_of(item) is None:
        return list(item)
    base = base_of(item)
    return [None if base is None else contents_of(item, base), {} if is_own_dict(item) else attributes_of(item)]
