"""Arguments of a compiled function: tensors are inputs of its program, parameters and objects have a part in its state.

Containers are made anew for the trace, so that no tensor of it gets into the user's. What the function does to them, and to the
memory of tensors, is done to the user's own after the call.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from ...utilities._containers import Opened, map_leaves, open_container
from ...utilities._leaves import Same, is_array_of_numbers
from ...utilities._torch_internals import FunctionalTensor, has_data_mutation

_EXACT_IN_FLOAT64 = 2**53
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)


@dataclass(frozen=True)
class _Input:
    """The place of a tensor or an array."""

    number: int


@dataclass(frozen=True)
class _Number:
    """The place of a plain number."""

    name: str


@dataclass(frozen=True)
class _Fixed:
    """A value that the trace has as it is."""

    value: Any


@dataclass(frozen=True)
class _Container:
    """A list, a dict, a dataclass or the like, with the number under which it is known."""

    number: int
    opened: Opened = field(compare=False)
    children: tuple[Any, ...] = field(compare=False)


class _Equal:
    """Compares a value that has no hash with what it is now."""

    def __init__(self, value: object) -> None:
        self._value = copy.copy(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Equal) and type(self._value) is type(other._value) and bool(self._value == other._value)

    __hash__ = None  # type: ignore[assignment]


class _Given:
    """Stands, in what a trace leaves in a container, for something that was among the arguments."""

    def __init__(self, is_input: bool, number: int) -> None:
        self.is_input, self.number = is_input, number


@dataclass
class Changes:
    """Changes that a call made to its arguments.

    Attributes:
        written: by number of an input: its new values.
        contents: by number of a container: what is in it now.
    """

    written: dict[int, torch.Tensor]
    contents: dict[int, Any]


class CallArguments:
    """The arguments of one call.

    Args:
        args: the positional ones.
        kwargs: those by name.
        names: of the positional ones, as far as they have any.

    Attributes:
        inputs: tensors and arrays of numbers, each once.
        objects: parameters, and other objects that may have tensors or numbers in them.
        numbers: plain numbers, by where they stand.
        key: equal for calls that differ in nothing but the values of inputs.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str] = ()) -> None:
        self._names = (names, tuple(kwargs))
        self.inputs: list[torch.Tensor | np.ndarray] = []
        self.objects: list[object] = []
        self.numbers: dict[str, int | float] = {}
        self._containers: list[Any] = []
        self._known: dict[int, _Input | _Container] = {}
        keys: list[Any] = [len(args), *kwargs]
        self._args = [self._read(value, keys, (0, place)) for place, value in enumerate(args)]
        self._kwargs = {name: self._read(value, keys, (1, place)) for place, (name, value) in enumerate(kwargs.items())}
        self.key = tuple(keys)

    def _read(self, value: Any, keys: list[Any], path: tuple[int, ...]) -> _Input | _Number | _Fixed | _Container:
        known = self._known.get(id(value))
        if known is not None:
            keys.append(known)
            return known
        if isinstance(value, torch.Tensor):
            if isinstance(value, nn.Parameter):  # of a model, say, which the function may know from elsewhere
                self.objects.append(value)
                keys.append(Same(value))
                return _Fixed(value)
            keys.append("tensor")
            found: Any = _Input(len(self.inputs))
            self.inputs.append(value)
        elif _is_number(value):
            keys.append(type(value))
            name = self._name(path)
            self.numbers[name] = value
            return _Number(name)
        elif is_array_of_numbers(value):
            keys.append("array")
            found = _Input(len(self.inputs))
            self.inputs.append(value)
        elif (opened := open_container(value)) is not None:
            self._containers.append(value)
            number = len(self._containers) - 1
            keys += [type(value), opened.context]
            children = [self._read(child, keys, (*path, place)) for place, child in enumerate(opened.children)]
            found = _Container(number, opened, tuple(children))
        else:
            keys.append(self._key_of(value))
            return _Fixed(value)
        self._known[id(value)] = found
        return found

    def _name(self, path: tuple[int, ...]) -> str:
        kind, place, *inside = path
        names = self._names[kind]
        name = names[place] if place < len(names) else f"args[{place}]"
        return name + "".join(f"[{one}]" for one in inside)

    def _key_of(self, value: Any) -> Any:
        if isinstance(value, _PLAIN):
            return type(value), repr(value)  # which tells -0.0 from 0.0
        if isinstance(value, nn.Module | torch.optim.Optimizer) or (hasattr(value, "__dict__") and not callable(value)):
            self.objects.append(value)
            return Same(value)
        return (type(value), value) if isinstance(value, Hashable) else _Equal(value)

    def traced(self, inputs: Sequence[torch.Tensor], numbers: Mapping[str, Any]) -> TracedArguments:
        """The arguments with tensors and numbers of a trace in place of the inputs and the plain numbers."""
        return TracedArguments(self._args, self._kwargs, self.inputs, inputs, numbers, len(self._containers))

    def apply(self, changes: Changes) -> None:
        """Do to the user's own arguments what the call did to those of the trace."""
        for number, values in changes.written.items():
            target = self.inputs[number]
            if isinstance(target, np.ndarray):
                np.copyto(target, values.numpy())  # host sync: the array is the user's memory
            else:
                with torch.no_grad():
                    target.copy_(values)  # host sync, where the tensor is in the host's memory
        for number, content in changes.contents.items():
            _fill(self._containers[number], map_leaves(self._resolved, content))

    def _resolved(self, leaf: Any) -> Any:
        if not isinstance(leaf, _Given):
            return leaf
        return (self.inputs if leaf.is_input else self._containers)[leaf.number]


class TracedArguments:
    """Arguments in a trace.

    Attributes:
        args: the positional ones.
        kwargs: those by name.
        inputs: tensors of the trace.
    """

    def __init__(
        self,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        originals: Sequence[Any],
        inputs: Sequence[torch.Tensor],
        numbers: Mapping[str, Any],
        count: int,
    ) -> None:
        self._numbers = numbers
        self.inputs = inputs
        self._values = [x.numpy() if isinstance(one, np.ndarray) else x for one, x in zip(originals, inputs, strict=True)]
        self._shapes = [tuple(x.shape) for x in inputs]
        self._containers: list[Any] = [None] * count
        self._made: dict[int, _Container] = {}
        self.args = [self._build(tree) for tree in args]
        self.kwargs = {name: self._build(tree) for name, tree in kwargs.items()}

    def _build(self, tree: Any) -> Any:
        if isinstance(tree, _Input):
            return self._values[tree.number]
        if isinstance(tree, _Number):
            return self._numbers[tree.name]
        if isinstance(tree, _Fixed):
            return tree.value
        if tree.number not in self._made:
            self._made[tree.number] = tree
            self._containers[tree.number] = tree.opened.rebuild([self._build(child) for child in tree.children])
        return self._containers[tree.number]

    def changes(self) -> Changes:
        """Changes to them since they were made.

        Raises:
            ValueError: a tensor has another shape, which the caller's cannot get.
        """
        written = {number: x for number, x in enumerate(self.inputs) if is_written(x)}
        for number, x in written.items():
            if tuple(x.shape) != self._shapes[number]:
                raise ValueError(
                    f"The function changes the shape of an argument in place, from {self._shapes[number]} to {tuple(x.shape)}. "
                    "Expected: the shape that it came with. Return the tensor instead."
                )
        given = {id(value): _Given(True, number) for number, value in enumerate(self._values)}
        given |= {id(value): _Given(False, number) for number, value in enumerate(self._containers)}
        contents = {}
        for number, tree in self._made.items():
            now = open_container(self._containers[number])
            if now is not None and _can_change(self._containers[number]) and not self._is_as_made(tree, now):
                contents[number] = _content(self._containers[number], lambda value: given.get(id(value)))
        return Changes(written, contents)

    def _is_as_made(self, tree: _Container, now: Opened) -> bool:
        before = [self._build(child) for child in tree.children]
        return now.context == tree.opened.context and all(one is other for one, other in zip(now.children, before, strict=True))


def _is_number(one: object) -> bool:
    """Whether a value is a number that a program may take as an input: the state's guards do not tell -0.0 from 0.0."""
    value: Any = one
    if type(value) in (int, np.int64):
        return abs(value) <= _EXACT_IN_FLOAT64
    is_real = type(value) in (float, np.float64, np.float32)
    return is_real and math.isfinite(value) and (value != 0 or math.copysign(1, value) > 0)


def is_written(x: object) -> bool:
    """Whether a tensor of a trace has been written to in place, itself or by a view of it."""
    return isinstance(x, FunctionalTensor) and has_data_mutation(x.elem)


def _can_change(container: Any) -> bool:
    return isinstance(container, list | MutableMapping) or dataclasses.is_dataclass(container)


def _content(container: Any, known: Callable[[Any], _Given | None]) -> Any:
    """The contents of a container: a list, or a dict of its items or fields."""

    def marked(value: Any) -> Any:
        if (found := known(value)) is not None:
            return found
        opened = open_container(value)
        return value if opened is None else opened.rebuild([marked(child) for child in opened.children])

    if isinstance(container, list):
        return [marked(value) for value in container]
    items = container.items() if isinstance(container, MutableMapping) else vars(container).items()
    return {key: marked(value) for key, value in items}


def _fill(container: Any, content: Any) -> None:
    """Make a container hold this."""
    if isinstance(container, list):
        container[:] = content
    elif isinstance(container, MutableMapping):
        for key in [key for key in container if key not in content]:
            del container[key]
        container.update(content)
    else:
        for name, value in content.items():
            object.__setattr__(container, name, value)
