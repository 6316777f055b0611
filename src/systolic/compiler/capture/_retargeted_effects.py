"""Effects of a step that was traced with other containers than those that are there now."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator

from ._call import Captured
from ._effects import Append, DeleteItem, Effect, HostCall, Kept, ResizeList, SetContents, SetItem, templates_of
from ._hook_tables import HookEffect
from ._object_graph import ObjectGraph, Path
from ._output_tree import MadeContainer, MadeObject
from ._plain_objects import is_plain_object


def retargeted_effects(captured: Captured, now: ObjectGraph) -> list[Effect] | None:
    """The effects of a step on the containers that are there now; None where one hands on a container that is gone.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.
    """
    place_of = captured.objects.places()
    there, objects = now.changeable(), dict(now.objects())
    gone = {number for number, path in place_of.items() if id(there.get(path)) != number}
    gone |= {id(item) for path, item in captured.objects.objects() if objects.get(path) is not item}
    values = captured.objects.values
    gone |= {id(one) for path, one in values.items() if now.values.get(path) is not one and is_plain_object(one)}
    if not gone:
        return captured.effects
    found: list[Effect] = []
    for effect in captured.effects:
        if isinstance(effect, HookEffect) or _mentions(effect, gone):
            return None
        if isinstance(effect, SetItem | DeleteItem | ResizeList | Append | SetContents) and id(effect.container) in gone:
            path = place_of.get(id(effect.container))
            if path not in there:
                return None
            effect = dataclasses.replace(effect, container=there[path])
        found.append(effect)
    return None if any(_of_leaves(captured.result.leaves, gone, set())) else found


def changed_contents(captured: Captured) -> set[Path]:
    """The paths of lists, and of entries of other containers, that a step changes; not of attributes that it sets."""
    place_of = captured.objects.places()
    found: set[Path] = set()
    for effect in captured.effects:
        if isinstance(effect, ResizeList | Append | SetContents) and id(effect.container) in place_of:
            found.add(place_of[id(effect.container)])
        elif isinstance(effect, SetItem | DeleteItem) and not _is_attribute(captured, effect.path):
            found.add(effect.path)
    return found


def _is_attribute(captured: Captured, path: Path) -> bool:
    return any(depth == len(path) for depth, _ in captured.objects.attributes_of(path))


def _mentions(effect: Effect, gone: Collection[int]) -> bool:
    """Whether some objects, by id, are among what an effect hands on."""
    if isinstance(effect, HostCall) and id(getattr(effect.function, "__self__", None)) in gone:
        return True
    return any(mention for tree in templates_of(effect) for mention in _of_leaves(tree.leaves, gone, set()))


def _of_leaves(leaves: Iterable[object], gone: Collection[int], seen: set[int]) -> Iterator[bool]:
    for leaf in leaves:
        if isinstance(leaf, MadeContainer | MadeObject):
            if id(leaf) not in seen:  # an object may hold itself
                seen.add(id(leaf))
                yield from _of_leaves(leaf.inner, gone, seen)
        else:
            yield id(leaf.value if isinstance(leaf, Kept) else leaf) in gone
