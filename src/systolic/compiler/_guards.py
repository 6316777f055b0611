"""Is a captured graph still valid? Fast when nothing changed; exact about what changed when something did (C5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import is_not, itemgetter
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from ._survey import Path, Survey, describe
from ._symbols import HostExpression, Number

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


class Guards:
    """The conditions under which one graph holds.

    The fast check compares the identity of every value that the survey found; Python keeps the identity of an
    attribute that nobody assigned. Where an identity differs, equality of type and value decides.
    """

    def __init__(
        self, survey: Survey, variable: Sequence[Path], conditions: list[tuple[HostExpression, str]]
    ) -> None:
        self._survey = survey
        self._conditions = conditions
        self._checks = list(_checks(survey, set(variable)))
        self._sets = survey.sets
        self._states = [(o.state, len(o.state)) for o in survey.optimizers().values()]
        unique = {id(t): t for t in survey.tensors.values()}
        self._tensors = list(unique.values())
        self._requires_grad = [t.requires_grad for t in self._tensors]
        self._leaves = [t for t in self._tensors if t.is_leaf]
        self._has_grad = [t.grad is not None for t in self._leaves]
        self._hooks = [(hooks, list(hooks.items())) for hooks in survey.hooks]
        self._used_hooks = [(hooks, len(known)) for hooks, known in self._hooks if known]
        self._registered = RemovableHandle.next_id
        self._variables = [(survey.containers[p[:-1]], p[-1], type(survey.values[p])) for p in variable]

    def hold(self, numbers: Sequence[Number]) -> bool:
        """Whether the graph is valid for the objects as they are now.

        Args:
            numbers: the values of the symbolic numbers.
        """
        return (
            all(len(c) == size and self._unchanged(i, get(c)) for i, (c, get, _, size) in enumerate(self._checks))
            and all(len(hooks) == size for hooks, size in self._used_hooks)
            and [t.requires_grad for t in self._tensors] == self._requires_grad
            and [t.grad is not None for t in self._leaves] == self._has_grad
            and all(current == copy for current, copy in self._sets)
            and all(len(state) == size for state, size in self._states)
            and all(condition(numbers) for condition, _ in self._conditions)
            and (RemovableHandle.next_id == self._registered or self._same_hooks())
        )

    def variable_values(self) -> list[Number] | None:
        """The current values of the numbers that the graph takes as inputs; None when one changed its type."""
        values = [container[key] for container, key, _ in self._variables]
        return values if all(type(v) is k for v, (_, _, k) in zip(values, self._variables, strict=True)) else None

    def _same_hooks(self) -> bool:
        """Somewhere a hook was registered: was it on one of our modules?"""
        if any(list(hooks.items()) != known for hooks, known in self._hooks):
            return False
        self._registered = RemovableHandle.next_id
        return True

    def _unchanged(self, index: int, current: tuple[Any, ...]) -> bool:
        container, get, snapshot, size = self._checks[index]
        if not any(map(is_not, current, snapshot)):
            return True
        if not all(a is b or _same_plain(a, b) for a, b in zip(current, snapshot, strict=True)):
            return False
        self._checks[index] = (container, get, current, size)
        return True


def _same_plain(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, _PLAIN) and a == b


Check = tuple[Any, Callable[[Any], tuple[Any, ...]], tuple[Any, ...], int]


def _checks(survey: Survey, variable: set[Path]) -> Iterator[Check]:
    for path, container in survey.containers.items():
        keys = [key for key in survey.keys[path] if (*path, key) not in variable]
        if keys:
            get = itemgetter(*keys) if len(keys) > 1 else _single(keys[0])
            yield container, get, get(container), len(container)
        else:
            yield container, lambda _: (), (), len(container)


def _single(key: Any) -> Callable[[Any], tuple[Any, ...]]:
    return lambda container: (container[key],)


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
