"""Changes between steps that a program need not know of: those of attributes which its step neither reads nor sets.

A hook that runs between the steps keeps a list of losses on the module, counts, or notes a text for its messages. A walk finds
that the module is another one than before; the trace knows that it was none of the step's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..capture import Attribute, Captured, ObjectGraph, Path, SameAs, changed_contents, changes
from ._other_objects import other_objects


def without_a_trace(captured: Captured, now: ObjectGraph) -> tuple[frozenset[Attribute], frozenset[Path]]:
    """Changes that ask for no other trace, where there are no others; two empty sets where there are.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.

    Returns:
        attributes that the step leaves alone, and paths of other tensors and objects of which it knows the kind only.
    """
    before, after = captured.objects.values, now.values
    # another number is another input of the program; what is no number of the kind any more is not
    inputs = {path for path in captured.symbol_paths if type(after.get(path)) is type(before[path])}
    changed = [path for path, _ in changes(captured.objects, now) if path not in inputs]
    if attributes := left_alone(captured, now, changed):
        return attributes, frozenset()
    others = other_objects(captured, now, changed)
    rest = [path for path in changed if path not in others]
    attributes = left_alone(captured, now, rest)
    return (frozenset(), frozenset()) if rest and not attributes else (attributes, others)


def left_alone(captured: Captured, now: ObjectGraph, changed: Iterable[Path]) -> frozenset[Attribute]:
    """The attributes whose changes are all that changed, where the step leaves each of them alone; empty otherwise.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.
        changed: paths of what is not as it was.
    """
    # what the step changes there it has got at another way, through a variable around a function: a list that it appends to
    used = {*captured.symbol_paths, *changed_contents(captured)}
    found: set[Attribute] = set()
    waiting = list(changed)
    while waiting:
        path = waiting.pop()
        place = _place(path, captured, now)
        if place is None:
            return frozenset()
        depth, attribute = place
        if attribute in found:
            continue
        # a number that is an input of the program is looked up there before every step
        if any(p[:depth] == path[:depth] for p in used):
            return frozenset()
        found.add(attribute)
        waiting += [*_aliases(path[:depth], captured.objects), *_aliases(path[:depth], now)]
    return frozenset(found)


def what_counts(captured: Captured, now: ObjectGraph, found: Sequence[tuple[Path, str]]) -> list[str]:
    """The texts of changes to what a step reads or sets.

    Args:
        captured: the step, with the objects as they were.
        now: the objects as they are.
        found: what changed.
    """
    return [text for path, text in found if _place(path, captured, now) is None]


def _place(path: Path, captured: Captured, now: ObjectGraph) -> tuple[int, Attribute] | None:
    """The attribute under which a path lies and that the step leaves alone, with the length of the attribute's own path."""
    for objects in (captured.objects, now):
        for depth, attribute in objects.attributes_of(path):
            if captured.reads.left_alone(attribute):
                return depth, attribute
    return None


def _aliases(path: Path, objects: ObjectGraph) -> Iterator[Path]:
    """Other paths to what lies under a path: read there, it is read."""
    for other, value in objects.values.items():
        if isinstance(value, SameAs) and value.path[: len(path)] == path:
            yield other
