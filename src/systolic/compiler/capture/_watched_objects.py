"""Objects that a step turns out to read besides those it is known to use: it is traced again, with them watched."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator

from .._capture_thread import is_capture_thread
from ._object_graph import Attributes

_known: set[int] | None = None


class ObjectIsReadError(Exception):
    """A step reads an object that was not watched.

    Attributes:
        name: what to call it.
        watched: the object, or those of its attributes that matter.
    """

    def __init__(self, name: str, watched: object) -> None:
        super().__init__(f"the step reads {name}, which was not watched")
        self.name, self.watched = name, watched


def require_watched(name: str, owner: object, attributes: Collection[str] | None = None) -> None:
    """Raise where the step that is being traced reads an object that may change without its notice; else nothing.

    Args:
        name: what to call the object in reasons for compiling.
        owner: the object.
        attributes: what the step may read of it: numbers, text, tensors and containers; None for an object of the user's,
            of which that counts which the step turns out to read.

    Raises:
        ObjectIsReadError: the engine traces the step again with these attributes watched.
    """
    if _known is not None and is_capture_thread() and id(owner) not in _known:
        raise ObjectIsReadError(name, owner if attributes is None else Attributes(owner, frozenset(attributes)))


@contextlib.contextmanager
def watching_objects(roots: Iterable[object]) -> Iterator[None]:
    """Inside the block, a step is traced of which these are the objects."""
    global _known
    before, _known = _known, {id(root.owner) if isinstance(root, Attributes) else id(root) for root in roots}
    try:
        yield
    finally:
        _known = before
