"""Is a captured graph still valid? Fast when nothing changed; exact about what changed when something did (C5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ._survey import Path, Survey, describe
from ._symbols import HostExpression, Number

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_requires_grad = attrgetter("requires_grad")
_grad = attrgetter("grad")


class Guards:
    """The conditions under which one graph holds.

    The fast check compares the identity of every value that the survey found; Python keeps the identity of an
    attribute that nobody assigned. Where an identity differs, equality of type and value decides.
    """

    def __init__(self, survey: Survey, variable: Sequence[Path], conditions: list[tuple[HostExpression, str]]) -> None:
        self._conditions = [condition for condition, _ in conditions]
        self._items = list(_items(survey, set(variable)))
        self._identical = _compiled_check(self._items)
        self._sets = survey.sets
        self._sizes = [(o.state, len(o.state)) for o in survey.optimizers().values()]
        self._tensors = survey.trainable_tensors()
        self._requires_grad = list(map(_requires_grad, self._tensors))
        self._leaves = [t for t in self._tensors if t.requires_grad and t.is_leaf]
        self._grads = list(map(_grad, self._leaves))
        self._hooks = [(hooks, list(hooks.items())) for hooks in survey.hooks]
        self._sizes += [(hooks, len(known)) for hooks, known in self._hooks if known]
        self._registered = RemovableHandle.next_id
        self._variables = [(survey.containers[p[:-1]], p[-1], type(survey.values[p])) for p in variable]

    def hold(self, numbers: Sequence[Number]) -> bool:
        """Whether the graph is valid for the objects as they are now.

        Args:
            numbers: the values of the symbolic numbers.
        """
        return (
            (self._identical() or self._equal())
            and list(map(_requires_grad, self._tensors)) == self._requires_grad
            and [g is None for g in map(_grad, self._leaves)] == [g is None for g in self._grads]
            and all(len(container) == size for container, size in self._sizes)
            and all(current == copy for current, copy in self._sets)
            and all(condition(numbers) for condition in self._conditions)
            and (RemovableHandle.next_id == self._registered or self._same_hooks())
        )

    def variable_values(self) -> list[Number] | None:
        """The current values of the numbers that the graph takes as inputs; None when one changed its type."""
        values = [container[key] for container, key, _ in self._variables]
        return values if all(type(v) is k for v, (_, _, k) in zip(values, self._variables, strict=True)) else None

    def _equal(self) -> bool:
        """The exact check; when it passes, the fast check is made anew for the objects that are there now."""
        for container, size, entries in self._items:
            if len(container) != size:
                return False
            for position, (key, known) in enumerate(entries):
                current = container[key]
                if current is not known and not _same_plain(current, known):
                    return False
                entries[position] = (key, current)
        self._identical = _compiled_check(self._items)
        return True

    def _same_hooks(self) -> bool:
        """Somewhere a hook was registered: was it on one of our modules?"""
        if any(list(hooks.items()) != known for hooks, known in self._hooks):
            return False
        self._registered = RemovableHandle.next_id
        return True


def _same_plain(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, _PLAIN) and a == b


Item = tuple[Any, int, list[tuple[Any, Any]]]


def _items(survey: Survey, variable: set[Path]) -> Iterator[Item]:
    """Every container with its length and the values that must stay."""
    for path, container in survey.containers.items():
        keys = [key for key in survey.keys[path] if (*path, key) not in variable]
        yield container, len(container), [(key, container[key]) for key in keys]


def _compiled_check(items: list[Item]) -> Callable[[], bool]:
    """A function that compares identities. Generated, because it runs before every step: about 20 ns per value."""
    names: dict[str, Any] = {}
    lines = ["def identical():"]
    for number, (container, size, entries) in enumerate(items):
        names[f"c{number}"] = container
        tests = [f"len(c{number}) != {size}"]
        for position, (key, value) in enumerate(entries):
            names[f"v{number}_{position}"] = value
            names[f"k{number}_{position}"] = key
            tests.append(f"c{number}[k{number}_{position}] is not v{number}_{position}")
        lines.append(f"    if {' or '.join(tests)}: return False")
    lines.append("    return True")
    # default arguments are locals, which Python reads faster than globals
    lines[0] = f"def identical({', '.join(f'{name}={name}' for name in names)}):"
    exec("\n".join(lines), names)  # the source holds only names made here
    return names["identical"]


def changes(old: Survey, new: Survey) -> list[tuple[Path, str]]:
    """What differs between two walks, each with a text for people: `model.scale: 0.5 -> 0.7`."""
    found: list[tuple[Path, str]] = []
    for path in {**old.values, **new.values}:
        was, now = old.values.get(path, _ABSENT), new.values.get(path, _ABSENT)
        if was is not now and not (type(was) is type(now) and was == now):
            found.append((path, f"{describe(path)}: {_short(was)} -> {_short(now)}"))
    for path in {**old.tensors, **new.tensors}:
        text = _tensor_change(old.tensors.get(path), new.tensors.get(path))
        if text:
            found.append((path, f"{describe(path)}: {text}"))
    for path in old.grads.keys() ^ new.grads.keys():
        found.append(((*path, "grad"), f"{describe(path)}.grad: {'set' if path in new.grads else 'removed'}"))
    return found


_ABSENT = type("Absent", (), {"__repr__": lambda self: "(absent)"})()


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _tensor_change(was: torch.Tensor | None, now: torch.Tensor | None) -> str:
    if was is now:
        return ""
    if was is None or now is None:
        return "new tensor" if was is None else "tensor removed"
    return "another tensor object"
