"""Batches as steps leave them, for hooks that get them afterwards: tensors written in place, keys that are new or gone.

The step gets containers of its own, made of tensors on the devices, and what it does to them is seen by nobody else. What it
left where something changed is a result of the step; everything else is in the batch that the loader gave.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..compiler import is_written
from ..utilities._containers import map_leaves, open_container
from ._recording import RecordingDict

KEY = "batch"
"""The name of the batch among a step's results; not there where nothing changed."""


class _Kept:
    """Stands for a part of the batch that is as the loader gave it."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self.path = path


class GivenBatch:
    """A batch at the beginning of a step.

    Args:
        batch: as the step gets it.
    """

    def __init__(self, batch: Any) -> None:
        self._changed = False
        self._before = _plain(batch)  # containers that nobody changes

    def left(self, batch: Any) -> dict[str, Any]:
        """The batch at the end of the step, as a result of it; nothing where it is as it was."""
        now = self._marked(_plain(batch), self._before, ())
        return {KEY: now} if self._changed else {}

    def _marked(self, now: Any, before: Any, path: tuple[int, ...]) -> Any:
        opened, known = open_container(now), open_container(before)
        if opened is None or known is None or type(now) is not type(before):
            if now is before and not is_written(now):
                return _Kept(path)
            self._changed = True
            return now
        if isinstance(now, Mapping):
            places = {key: place for place, key in enumerate(before)}
            self._changed |= list(now) != list(before)
            children = [
                self._marked(value, before[key], (*path, places[key])) if key in places else value for key, value in now.items()
            ]
        else:
            self._changed |= len(opened.children) != len(known.children)
            pairs = zip(opened.children, known.children, strict=False)
            children = [self._marked(one, other, (*path, place)) for place, (one, other) in enumerate(pairs)]
            children += opened.children[len(children) :]
        return opened.rebuild(children)


def _plain(value: Any) -> Any:
    """The same in containers of its own; nothing of it counts as read."""
    if isinstance(value, RecordingDict):
        return {key: _plain(one) for key, one in dict.items(value)}
    opened = open_container(value)
    return value if opened is None else opened.rebuild([_plain(one) for one in opened.children])


def as_left(batch: Any, results: Mapping[str, Any]) -> Any:
    """The batch for hooks after a step.

    Args:
        batch: as the loader gave it.
        results: what the step returned.
    """
    if KEY not in results:
        return batch
    return map_leaves(lambda leaf: _at(batch, leaf.path) if isinstance(leaf, _Kept) else leaf, results[KEY])


def _at(batch: Any, path: tuple[int, ...]) -> Any:
    for place in path:
        opened = open_container(batch)
        assert opened is not None, "the step got the same containers"
        batch = opened.children[place]
    return batch
