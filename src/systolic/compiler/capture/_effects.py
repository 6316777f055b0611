"""Effects of a step: changes to Python objects, besides new values of the tensors that were there before."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...distributed import is_main_process
from ._hook_tables import HookEffect
from ._host_result import LEFT_OUT, HostResult
from ._object_graph import IMPLEMENTATION_SWITCHES, ObjectGraph, Path
from ._output_tree import OutputTree, plain_key
from ._plain_objects import same_elements

Fill = Callable[[OutputTree], Any]


@dataclass(frozen=True)
class SetItem:
    """`container[key] = value`, for attributes, dict entries and list elements."""

    container: Any
    path: Path
    value: OutputTree

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.container[self.path[-1]] = fill(self.value)


@dataclass(frozen=True)
class DeleteItem:
    """`del container[key]`."""

    container: Any
    path: Path

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.container.pop(self.path[-1], None)


@dataclass(frozen=True)
class ResizeList:
    """A list that got shorter, or whose elements moved."""

    container: list[Any]
    path: Path
    value: OutputTree

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.container[:] = fill(self.value)


@dataclass(frozen=True)
class Append:
    """Elements added at the end of a list; the elements before them are not looked at."""

    container: list[Any]
    path: Path
    value: OutputTree

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.container.extend(fill(self.value))


@dataclass(frozen=True)
class OptimizerState:
    """A parameter's first entries in `optimizer.state`."""

    optimizer: torch.optim.Optimizer
    parameter: torch.Tensor
    value: OutputTree

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.optimizer.state[self.parameter] = fill(self.value)


@dataclass(frozen=True)
class Gradient:
    """`parameter.grad` that is left after the step, or was removed by it (None)."""

    parameter: torch.Tensor
    value: OutputTree | None

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.parameter.grad = None if self.value is None else fill(self.value)


@dataclass(frozen=True)
class RequiresGrad:
    """`tensor.requires_grad_(flag)`."""

    tensor: torch.Tensor
    flag: bool

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        self.tensor.requires_grad_(self.flag)


@dataclass(frozen=True)
class SetContents:
    """Contents of a set or deque after the step."""

    container: set[Any] | deque[Any]
    value: OutputTree

    def apply(self, fill: Fill) -> None:
        """Carry it out."""
        contents = fill(self.value)
        self.container.clear()
        self.container.update(contents) if isinstance(self.container, set) else self.container.extend(contents)


@dataclass(frozen=True)
class Kept:
    """An argument of a host call that was known while the step was traced."""

    value: Any


class StandIn:
    """Stands in the place of an object while a step is traced; a call after the step gets the object.

    Args:
        original: the object.
    """

    def __init__(self, original: Any) -> None:
        self.original = original


@dataclass(frozen=True)
class HostCall:
    """A call that shows or stores something.

    Attributes:
        function: what is called.
        value: its arguments.
        line: the user's.
        by_first: whether of several processes only the first one makes it.
    """

    function: Callable[..., Any]
    value: OutputTree
    line: str
    by_first: bool = False

    def apply(self, fill: Fill) -> None:
        """Make it."""
        args, kwargs = fill(self.value)
        plain = [one.value if isinstance(one, Kept) else one for one in args]
        named = {name: one.value if isinstance(one, Kept) else one for name, one in kwargs.items()}
        others = self.by_first and not is_main_process()
        if others or any(one is LEFT_OUT for one in (*plain, *named.values())):
            if plain and isinstance(plain[0], HostResult):
                plain[0].leave_out()
            return
        self.function(*plain, **named)


Effect = (
    HostCall | SetItem | DeleteItem | ResizeList | Append | SetContents | OptimizerState | Gradient | RequiresGrad | HookEffect
)


def templates_of(effect: Effect) -> list[OutputTree]:
    """The values that an effect needs."""
    value = None if isinstance(effect, DeleteItem | RequiresGrad | HookEffect) else effect.value
    return [] if value is None else [value]


class Finals(Protocol):
    """Final tensors of a step, by the places where they stand."""

    def updates_in_place(self, path: Path, now: torch.Tensor) -> bool:
        """Whether a tensor that stands where another one stood is an ordinary update of that one."""
        ...

    def tree(self, structure: object) -> OutputTree:
        """A value that the step left, with its tensors as outputs."""
        ...


def container_effects(
    objects: ObjectGraph,
    before: dict[Path, Any],
    opaque: Iterable[Path],
    finals: Finals,
) -> list[Effect]:
    """Compare every container with its copy from before the step.

    Args:
        objects: the walk made before the step.
        before: a shallow copy of each container, with what stood in it as the step began.
        opaque: lists that are only appended to.
        finals: what becomes of the tensors.
    """
    effects: list[Effect] = []
    for path, container in objects.containers.items():
        if isinstance(container, list):
            effects += _list_effects(path, container, before[path], finals)
        elif isinstance(container, deque):
            effects += _deque_effects(path, container, before[path], finals)
        else:
            effects += _dict_effects(path, container, before[path], finals)
    for path in opaque:
        effects += _list_effects(path, objects.lists[path], before[path], finals)
    effects += [SetContents(item, finals.tree(list(item))) for item, old in objects.sets.values() if item != old]
    return effects


def _list_effects(path: Path, new: list[Any], old: list[Any], finals: Finals) -> list[Effect]:
    if len(new) < len(old):
        return [ResizeList(new, path, finals.tree(list(new)))]
    effects: list[Effect] = []
    for index, (was, now) in enumerate(zip(old, new, strict=False)):
        here = (*path, index)
        if was is not now and not _all_in_place(here, was, now, finals):
            effects.append(SetItem(new, here, finals.tree(now)))
    if len(new) > len(old):
        effects.append(Append(new, path, finals.tree(new[len(old) :])))
    return effects


def _deque_effects(path: Path, new: deque[Any], old: list[Any], finals: Finals) -> list[Effect]:
    same = len(new) == len(old) and all(
        was is now or _all_in_place((*path, i), was, now, finals) for i, (was, now) in enumerate(zip(old, new, strict=True))
    )
    return [] if same else [SetContents(new, finals.tree(list(new)))]


def _dict_effects(path: Path, new: dict[Any, Any], old: dict[Any, Any], finals: Finals) -> list[Effect]:
    effects: list[Effect] = []
    for traced, now in new.items():
        key = plain_key(traced)
        here = (*path, key)
        unchanged = key in old and (old[key] is now or _all_in_place(here, old[key], now, finals))
        if not unchanged and key not in IMPLEMENTATION_SWITCHES:
            effects.append(SetItem(new, here, finals.tree(now)))
    effects += [DeleteItem(new, (*path, key)) for key in old if key not in new]
    return effects


def _all_in_place(path: Path, was: object, now: object, finals: Finals) -> bool:
    """Whether a value is the old one, or holds new values for tensors of the same kind at the same places."""
    if isinstance(now, torch.Tensor):
        return isinstance(was, torch.Tensor) and finals.updates_in_place(path, now)
    if isinstance(now, tuple) and isinstance(was, tuple) and len(now) == len(was):
        return all(_all_in_place((*path, i), a, b, finals) for i, (a, b) in enumerate(zip(was, now, strict=True)))
    if type(now) is list and type(was) is list and len(now) == len(was):
        # made anew of the same elements, as torchvision's anchors are in every step: the list that was there may stay, while
        # another one would have to be watched anew, which takes a trace
        return all(a is b or _is_equal(a, b) for a, b in zip(was, now, strict=True))
    if type(now) is set and type(was) is set:  # the same holds of sets
        return same_elements(was, now, _is_equal)
    return was is now or _is_equal(was, now)


def _is_equal(was: object, now: object) -> bool:
    """Whether two plain values are equal; numbers of the trace stand for other ones in the next step."""
    if isinstance(now, torch.SymInt | torch.SymFloat):
        return False
    plain = (bool, int, float, str, bytes, type(None))
    return isinstance(now, plain) and type(was) is type(now) and was == now
