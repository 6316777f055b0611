"""Dicts that note what a trace reads from a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..utilities._torch_internals import register_pytree_node


def _reading_all(name: str) -> Any:
    """A dict's method that first notes every key as read."""
    method = getattr(dict, name)

    def read_all(self: RecordingDict, *args: Any) -> Any:
        self._note_all()
        return method(self, *args)

    return read_all


def _plain_dict(values: Iterable[Any], keys: Any) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


class RecordingDict(dict[Any, Any]):
    """A dict that notes which of its values that are no tensors were read. Looking at keys alone reads nothing."""

    _unread: Mapping[Any, list[int]] = {}
    _read: set[int] = set()

    def watch(self, unread: Mapping[Any, list[int]], read: set[int]) -> None:
        """Note reads of these keys in `read`, as the numbers given for them."""
        self._unread = unread
        self._read = read

    def _note(self, key: Any) -> None:
        self._read.update(self._unread.get(key, ()))

    def _note_all(self) -> None:
        for key in self._unread:
            self._note(key)

    def __getitem__(self, key: Any) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Any]:
        # defined so that `dict(batch)` and `**batch` do not copy past `__getitem__`, as C code does for plain dicts
        return super().__iter__()

    def get(self, key: Any, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: Any, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def setdefault(self, key: Any, default: Any = None) -> Any:
        self._note(key)
        return super().setdefault(key, default)

    items = _reading_all("items")
    values = _reading_all("values")
    popitem = _reading_all("popitem")
    copy = _reading_all("copy")
    __eq__ = _reading_all("__eq__")
    __ne__ = _reading_all("__ne__")
    __or__ = _reading_all("__or__")
    __ror__ = _reading_all("__ror__")
    __repr__ = _reading_all("__repr__")
    __reduce_ex__ = _reading_all("__reduce_ex__")


# what a step returns or keeps is taken apart by type, and must not hold a dict of ours
register_pytree_node(RecordingDict, lambda batch: (list(batch.values()), tuple(dict.keys(batch))), _plain_dict)


def unwatched(batch: Any) -> Any:
    """The batch with plain dicts, for code of ours that looks at its tensors only."""
    if isinstance(batch, RecordingDict):
        return {key: unwatched(value) for key, value in dict.items(batch)}
    if type(batch) in (list, tuple):
        return type(batch)(unwatched(value) for value in batch)
    return batch
