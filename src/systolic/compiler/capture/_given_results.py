"""Results of functions of the host for one batch: each is called once, by the trace or before the program.

Traces that begin again and programs that the batch is run under in vain take what was given before. What a call in a trace
did to the user's objects is undone there with all else, and done again where the program takes its result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from operator import is_
from typing import Any

import numpy as np
import torch

from ...utilities._torch_internals import tree_flatten, tree_leaves, tree_map, tree_map_only
from ._object_graph import Snapshot, items_of, put_back

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class GivenResult:
    """One call.

    Attributes:
        function: what was called.
        arguments: with what, as it was before the call.
        result: what it gave, and what is in the arguments to which it wrote.
        written: which ones these are, by their number among the leaves.
        done: what it did to the user's objects, where that was undone.
    """

    function: Callable[..., Any]
    arguments: Arguments
    result: tuple[Any, list[Any]]
    written: tuple[int, ...]
    done: tuple[Callable[[], None], ...] = ()

    def is_of(self, function: Callable[..., Any], arguments: Arguments) -> bool:
        """Whether this is the same call."""
        return is_same_function(self.function, function) and _are_close(self.arguments, arguments)


class GivenResults:
    """The calls of one batch, in their order."""

    def __init__(self) -> None:
        self._made: list[GivenResult] = []
        self._undone = 0

    def known(self, place: int, function: Callable[..., Any], arguments: Arguments) -> GivenResult | None:
        """The call at a place; None where there was none, or another one."""
        one = self._made[place] if place < len(self._made) else None
        return one if one is not None and one.is_of(function, arguments) else None

    def note(self, place: int, one: GivenResult) -> None:
        """Take a call; what came behind its place was of another way through the step."""
        self._made[place:] = [one]
        self._undone = min(self._undone, place)

    def done_in_trace(self, place: int) -> None:
        """Let the user's objects be as the calls before a place have left them."""
        for one in self._made[:place]:
            for do in one.done:
                do()

    def done_in_step(self, place: int) -> None:
        """The same for the call at a place, once."""
        while self._undone <= place < len(self._made):
            for do in self._made[self._undone].done:
                do()
            self._undone += 1


def changes_since(before: Snapshot) -> tuple[Callable[[], None], ...]:
    """Functions that do again what was done to containers since then."""
    changes = (_change(container, contents) for container, contents in before.copies)
    return tuple(change for change in changes if change is not None)


def _change(container: Any, before: Any) -> Callable[[], None] | None:
    """A function that lets a container hold again what it holds now; None where it holds what it held before."""
    if isinstance(container, list | deque | set):
        now = type(before)(container)
        same = now == before if isinstance(now, set) else len(now) == len(before) and all(map(is_, now, before))
        return None if same else partial(put_back, container, now)
    found = dict(items_of(container))
    new = {key: value for key, value in found.items() if key not in before or before[key] is not value}
    lost = before.keys() - found.keys()
    return partial(_set_entries, container, lost, new) if lost or new else None


def _set_entries(container: MutableMapping[Any, Any], lost: Collection[Any], new: Mapping[Any, Any]) -> None:
    """Remove entries of a dict and set others; those that the trace has made since stay."""
    put_back(container, {**{key: value for key, value in items_of(container) if key not in lost}, **new})


def is_same_function(function: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether two functions are one, or were made by the same line: a step may make its own anew each time."""
    code = getattr(function, "__code__", None)
    return function == other or (code is not None and code is getattr(other, "__code__", None))


def on_host(arguments: Any) -> Any:
    """Arguments with ordinary CPU tensors without gradients; a container without tensors stays the object that it is."""
    # host sync: the function wants values
    convert = lambda leaf: leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf  # noqa: E731
    return tree_map(convert, arguments, is_leaf=_holds_no_tensor)


def _holds_no_tensor(item: object) -> bool:
    return not any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(item))


def copied_contents(arguments: Any) -> Any:
    """Arguments with arrays and tensors of their own."""
    own = lambda one: one.clone() if isinstance(one, torch.Tensor) else one.copy()  # noqa: E731
    return tree_map_only((torch.Tensor, np.ndarray), own, arguments)


def _are_close(one: Any, other: Any) -> bool:
    """Whether arguments are equal but for what two programs round in their own ways."""
    (leaves, spec), (others, other_spec) = tree_flatten(one), tree_flatten(other)
    return spec == other_spec and all(map(_is_close, leaves, others))


def _is_close(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if not isinstance(one, torch.Tensor | np.ndarray | np.generic | float):
        return bool(one == other)
    if isinstance(one, np.ndarray) and one.dtype.kind not in "biufc":  # text, objects
        return np.array_equal(one, other)
    tensor, other_tensor = torch.as_tensor(one), torch.as_tensor(other)
    if tensor.shape != other_tensor.shape or tensor.dtype != other_tensor.dtype:
        return False
    return torch.allclose(tensor, other_tensor, rtol=1e-4, atol=1e-6, equal_nan=True)
