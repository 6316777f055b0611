"""Contents of the user's objects before a trace: of these only numbers are watched, and a trace may leave more than numbers.

An object like any other (a meter, a history, a callback with a hook on a module) may hold data that would take long to look
through before every step, so a walk takes its numbers and flags only. Where a step keeps a tensor, a value or a list in such an
object, the trace has left there what means nothing afterwards. The object is put back as it was, and the step is traced again
with the whole object watched, as a module is; with the attributes watched that it has read.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor
from .._capture_thread import replaced
from .._errors import is_ours
from ._object_graph import copied, put_back
from ._plain_objects import DATA, PLAIN, is_plain_object
from ._variables import own_attributes

_ALL = frozenset({"__dict__", "__getstate__", "__reduce_ex__"})
"""Who asks for these may look at every attribute: `vars`, `__getattr__` of settings that looks things up there, `copy.copy`."""
_SYMBOLS = (torch.SymBool, torch.SymInt, torch.SymFloat)
_NUMBERS = (bool, int, float, *_SYMBOLS)
_MAX_ENTRIES = 1_000
"""A container with more entries is data, which a step does not fill."""
_MAX_OBJECTS = 10_000


class ObjectsHoldValuesError(Exception):
    """A trace has used more of some objects than was watched.

    Attributes:
        objects: those in which it has left something: all that they hold counts.
        attributes: what it has read: these attributes of theirs count.
    """

    def __init__(self, objects: list[object], attributes: list[tuple[object, frozenset[str]]]) -> None:
        super().__init__("the step uses objects that were not watched")
        self.objects, self.attributes = objects, attributes


@dataclass(frozen=True)
class _Held:
    """Contents of a container before a trace, or an object by attribute.

    Attributes:
        container: the container.
        contents: a copy of it.
        owners: the plain objects in which it lies, the outermost first.
        is_walked: whether the walk watches the numbers in it, and what is set there.
    """

    container: Any
    contents: Any
    owners: tuple[object, ...]
    is_walked: bool

    @property
    def is_changed(self) -> bool:
        """Whether there is something else in it now that the walk does not see."""
        if not isinstance(self.container, Mapping):
            return len(self.container) != len(self.contents) or any(
                a is not b for a, b in zip(self.container, self.contents, strict=True)
            )
        ignored = _NUMBERS if self.is_walked else ()
        now = {key: value for key, value in self.container.items() if not isinstance(value, ignored)}
        before = {key: value for key, value in self.contents.items() if not isinstance(value, ignored)}
        return now.keys() != before.keys() or any(now[key] is not value for key, value in before.items())


class PlainObjects:
    """Contents of some objects before a trace, and of what they hold in turn.

    Args:
        objects: those of which a walk took the numbers only.
        walked: ids of objects and containers that the walk looked into.
        opened: by id: attributes that it took besides the numbers.
    """

    def __init__(self, objects: Iterable[object], walked: Iterable[int], opened: Mapping[int, frozenset[str] | None]) -> None:
        self._opened = opened
        self._held: list[_Held] = []
        self._seen = set(walked)
        self._tensors: dict[int, tuple[object, ...]] = {}
        self._objects: dict[int, object] = {}
        self._reads: dict[int, set[str]] = {}
        for item in objects:
            if not isinstance(item, DATA):
                self._note_object(item, (item,), True)

    def _note_object(self, item: object, owners: tuple[object, ...], is_walked: bool) -> None:
        self._seen.add(id(item))
        self._objects[id(item)] = item
        self._keep(own_attributes(item), owners, is_walked)

    def _note(self, item: object, owners: tuple[object, ...]) -> None:
        if isinstance(item, torch.Tensor):
            self._tensors[id(item)] = owners
        if isinstance(item, PLAIN) or id(item) in self._seen or len(self._held) > _MAX_OBJECTS:
            return
        if isinstance(item, list | dict | set | deque):
            self._seen.add(id(item))
            if len(item) <= _MAX_ENTRIES:
                self._keep(item, owners, False)
        elif is_plain_object(item):
            self._note_object(item, (*owners, item), False)

    def _keep(self, container: Any, owners: tuple[object, ...], is_walked: bool) -> None:
        contents = container.copy() if isinstance(container, set) else copied(container)
        self._held.append(_Held(container, contents, owners, is_walked))
        for one in list(container.values() if isinstance(container, Mapping) else container):
            self._note(one, owners)

    def knows(self, item: object) -> bool:
        """Whether an object or a container was there before the trace."""
        return id(item) in self._seen

    @contextlib.contextmanager
    def reads_noted(self) -> Iterator[None]:
        """Inside the block, it is noted which attributes of the objects are read."""
        with contextlib.ExitStack() as stack:
            for kind in {type(item) for item in self._objects.values()}:
                if kind.__getattribute__ is object.__getattribute__:
                    stack.enter_context(replaced(kind, "__getattribute__", self._noting))
            yield

    def _noting(self, item: object, name: str) -> Any:
        if id(item) in self._objects and (name != "__dict__" or not is_ours(sys._getframe(2).f_code.co_filename)):
            self._reads.setdefault(id(item), set()).add(name)
        return object.__getattribute__(item, name)

    def require_known(self, tensors: Iterable[torch.Tensor]) -> None:
        """Raise where the trace has used more of the objects than was watched; what it has changed in them is put back.

        Args:
            tensors: those that are no state, and that the trace has met.

        Raises:
            ObjectsHoldValuesError: what is to be watched, too.
        """
        changed = self.put_back()
        used = [self._tensors[id(tensor)] for tensor in tensors if id(tensor) in self._tensors]
        owners = {id(one): one for found in (*(held.owners for held in changed), *used) for one in found}
        attributes = [(item, names) for key, item in self._objects.items() if (names := self._compared(key, item))]
        if owners or attributes:
            raise ObjectsHoldValuesError(list(owners.values()), attributes)

    def put_back(self) -> list[_Held]:
        """Undo what a trace has changed in the objects; returns where that was."""
        changed = [held for held in self._held if held.is_changed and self._was_reached(held)]
        for held in changed:
            put_back(held.container, held.contents)
        return changed

    def _was_reached(self, held: _Held) -> bool:
        """Whether the trace got to a container; another thread, such as a loader's, may have changed it meanwhile."""
        owner = held.owners[-1]
        if id(owner) in self._reads or type(owner).__getattribute__ is not object.__getattribute__:
            return True
        now = held.container.values() if isinstance(held.container, Mapping) else held.container
        return any(isinstance(value, (*_SYMBOLS, FunctionalTensor)) for value in now)

    def _compared(self, key: int, item: object) -> frozenset[str]:
        """The attributes of an object that the trace has read, and that may be another thing for the next step."""
        own, known = own_attributes(item), self._opened.get(key) or ()
        read = self._reads.get(key, set())
        names = read if read.isdisjoint(_ALL) else own
        unknown = {name: own[name] for name in names if name in own and name not in known}
        # numbers are watched anyway
        return frozenset(name for name, one in unknown.items() if not isinstance(one, _NUMBERS) and counts_if_read(one))


def counts_if_read(value: object) -> bool:
    """Whether an attribute with this value is watched once a trace has read it; large containers and datasets are data."""
    return len(value) <= _MAX_ENTRIES if isinstance(value, list | dict | set | deque | tuple) else not isinstance(value, DATA)
