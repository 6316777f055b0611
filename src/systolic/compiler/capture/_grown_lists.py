"""Lists that a step appends to: where it reads them, too, what they hold decides the graph, and they have to be watched."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import torch

from ...utilities._torch_internals import tree_leaves
from .._capture_thread import replaced
from ._object_graph import ObjectGraph, SameAs, entries

# a hook in the loader's thread may append to the same list while a step is traced; not one for each, since they may be copied
_handing_over = threading.Lock()


class GrownList(list[Any]):
    """Stands for a list while a step is traced, and notes whether anything else than appending is done with it.

    What Python's C code does with an exact list it does without a call of a method; with an instance of another class it
    calls them (`len`, `sum`, unpacking, NumPy), which is why a list cannot be watched itself.
    """

    was_read = False
    original: list[Any] | None = None

    def append(self, item: Any, /) -> None:
        """Append; to the list itself once that is back, where another thread has still got hold of this one."""
        with _handing_over:
            (super() if self.original is None else self.original).append(item)

    def extend(self, items: Iterable[Any], /) -> None:
        """Append several."""
        found = list(items)
        with _handing_over:
            (super() if self.original is None else self.original).extend(found)

    def give_back(self, original: list[Any], length: int) -> None:
        """Hand over to the list that this stood for what was appended after so many items."""
        with _handing_over:
            original.extend(list.__getitem__(self, slice(length, None)))
            self.original = original

    def __radd__(self, other: list[Any]) -> list[Any]:
        """Add it to a list, which would otherwise look into it directly."""
        self.was_read = True
        return other + list(self)


_READING = (
    *("__add__", "__contains__", "__delitem__", "__eq__", "__ge__", "__getitem__", "__gt__", "__imul__", "__iter__", "__le__"),
    *("__len__", "__lt__", "__mul__", "__ne__", "__reduce_ex__", "__repr__", "__reversed__", "__rmul__", "__setitem__"),
    *("clear", "copy", "count", "index", "insert", "pop", "remove", "reverse", "sort"),
)


def _noting(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def noted(self: GrownList, *args: Any, **kwargs: Any) -> Any:
        self.was_read = True
        return method(self, *args, **kwargs)

    return noted


for _name in _READING:
    setattr(GrownList, _name, _noting(_name))


@contextlib.contextmanager
def metrics_only_append() -> Iterator[None]:
    """Inside the block, the hash of a torchmetrics metric and a call of it read no lists.

    Its own hash is made of its states, and whatever walks modules asks for it: `parameters()`, `modules()`.
    A call (`self.auroc(preds, target)`) copies the states of all batches, computes with those of this one in their places, and
    puts both together: with lists that grow it would be another program for each batch.
    """
    torchmetrics = sys.modules.get("torchmetrics")
    if torchmetrics is None:
        yield
        return
    metric = torchmetrics.Metric
    set_aside, put_together = _states_of_calls(metric._copy_state_dict, metric._reduce_states)
    with (
        replaced(metric, "__hash__", object.__hash__),
        replaced(metric, "_copy_state_dict", set_aside),
        replaced(metric, "_reduce_states", put_together),
    ):
        yield


def _states_of_calls(copied: Callable[..., Any], reduced: Callable[..., Any]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The methods by which a metric sets its states aside, and adds those of a batch to them; lists themselves, not copies."""

    def set_aside(metric: Any) -> dict[str, Any]:
        lists = _lists_of(metric)
        for name in lists:
            setattr(metric, name, [])  # the metric empties it for the batch
        return copied(metric) | lists

    def put_together(metric: Any, before: dict[str, Any]) -> None:
        of_batch = _lists_of(metric)
        lists = {name: before[name] for name in of_batch if isinstance(before.get(name), list)}
        reduced(metric, before | {name: [] for name in lists})
        for name, whole in lists.items():
            whole.extend(of_batch[name])
            setattr(metric, name, whole)

    return set_aside, put_together


def _lists_of(metric: Any) -> dict[str, list[Any]]:
    return {name: found for name in metric._defaults if isinstance(found := getattr(metric, name), list)}


class GrownLists:
    """The lists of an object graph that are taken for ones which a step only appends to.

    Args:
        objects: the graph.
        appended: the ids of such lists.
    """

    def __init__(self, objects: ObjectGraph, appended: Collection[int]) -> None:
        self._objects = objects
        self._lists = {id(item): (path, item) for path, item in objects.lists.items() if id(item) in appended}
        self._stand_ins = {number: GrownList(item) for number, (_, item) in self._lists.items()}
        # not of the lists, to which another thread may have appended since; not by `len`, which would count as reading
        self._lengths = {number: list.__len__(stand_in) for number, stand_in in self._stand_ins.items()}

    def install(self) -> None:
        """Put the stand-ins in the places of the lists."""
        self._replace(self._stand_ins)
        # inside of a tuple, which cannot be changed, it would be looked at unseen
        for number, (path, _) in self._lists.items():
            ways = [path, *(p for p, v in self._objects.values.items() if isinstance(v, SameAs) and v.path == path)]
            if any(way[:-1] not in self._objects.containers for way in ways):
                self._stand_ins[number].was_read = True

    def remove(self) -> None:
        """Put the lists back, with what was appended."""
        self._replace({id(stand_in): self._lists[number][1] for number, stand_in in self._stand_ins.items()})
        for number, (_, item) in self._lists.items():
            self._stand_ins[number].give_back(item, self._lengths[number])

    def _replace(self, others: Mapping[int, list[Any]]) -> None:
        for container in self._objects.containers.values():
            for key, held in entries(container):
                if isinstance(held, list) and id(held) in others:
                    container[key] = others[id(held)]

    def read(self, met: Collection[torch.Tensor]) -> set[int]:
        """The ids of those lists that are read.

        Args:
            met: tensors that the step used and that no object of the graph holds.
        """
        used = set(map(id, met))
        return {
            number
            for number, (_, item) in self._lists.items()
            if self._stand_ins[number].was_read
            or any(isinstance(leaf, torch.Tensor) and id(leaf) in used for leaf in tree_leaves(item[: self._lengths[number]]))
        }
