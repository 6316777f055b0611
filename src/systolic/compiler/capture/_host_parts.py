"""Functions of the host whose results the step computes with: each is called between two programs.

The first program gives their arguments, the second takes their results as inputs. While the step is traced, such a function is
called with the values of this batch, so that the shapes of its results are known; the objects of the user then hold what they
held before the step, and the program takes what was given. A step for which a result has another form (other shapes, dtypes,
texts) needs another program.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...runtime import reading_for_main_thread
from ...utilities._torch_internals import (
    TreeSpec,
    _disable_current_modes,
    is_functorch_tensor,
    tree_flatten,
    tree_leaves,
    tree_map,
    tree_unflatten,
)
from ...utilities._typical_time import TypicalTime
from .._errors import CaptureError, user_line_of
from ._given_results import GivenResult, GivenResults, changes_since, copied_contents, is_same_function, on_host
from ._host_result import HostResult, HostResultIsNeededError
from ._object_graph import ObjectGraph, Snapshot
from ._output_tree import OutputList, OutputTree, output_numbers
from ._speculation import Oracle
from ._symbols import SymbolTable
from ._traced_arrays import copied_array, fits_a_tensor, is_traced_array, tensor_behind, traced_array

_MOST_FUNCTIONS = 32
"""Each costs a trace."""


@dataclass(frozen=True)
class _Given:
    """An array, a tensor or a number that a function gives: its values are an input of the program.

    Attributes:
        kind: `torch.Tensor`, `np.ndarray`, `np.generic` (one of NumPy's scalars), `int` or `float`.
        shape: its shape.
        dtype: its dtype as a tensor.
    """

    kind: type
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class _Form:
    """All that a program takes for granted of a function's result: structure, shapes, and values that are no numbers."""

    leaves: tuple[Any, ...]
    spec: TreeSpec


@dataclass(frozen=True)
class HostPart:
    """One call of a function of the host in a step.

    Attributes:
        function: what is called.
        arguments: its arguments, of outputs of the graph.
        line: the user's.
        asked: how many questions about values the step had asked before: with other answers there is no such call.
        form: what the graph takes for granted of the result.
        tensors: inputs of the graph that take the result's values, in their order.
        written: which of its arguments it writes to, by their number among the leaves; they are results, too.
        cost: gets the seconds of each call, with those of the program before it.
    """

    function: Callable[..., Any]
    cost: TypicalTime
    arguments: OutputTree
    line: str
    asked: int
    form: _Form
    tensors: tuple[torch.Tensor, ...]
    written: tuple[int, ...]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result, and what is in the arguments to which it writes, for arguments on the host."""
        result = self.function(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        return result, [leaves[number] for number in self.written]

    def takes(self, result: object) -> bool:
        """Give the program a result; False where it has another form than the program was traced for."""
        form, values = _form_of(result, self.function, self.line)
        if form != self.form:
            return False
        for tensor, value in zip(self.tensors, values, strict=True):
            tensor.copy_(value)
        return True


class HostParts:
    """The host parts of one trace.

    Args:
        outputs: the outputs of its graph.
        oracle: knows the values of this batch.
        table: its symbolic numbers.
        functions: those whose results the step turned out to compute with.
        given: what functions gave for this batch already.
        as_before: a context in which the user's objects hold what they held before the step; gives the walk over them.

    Attributes:
        made: the calls, in order.
    """

    def __init__(
        self,
        outputs: OutputList,
        oracle: Oracle,
        table: SymbolTable,
        functions: Sequence[Callable[..., Any]],
        given: GivenResults,
        as_before: Callable[[], AbstractContextManager[ObjectGraph]],
    ) -> None:
        self._outputs, self._oracle, self._table = outputs, oracle, table
        self._functions, self._given, self._as_before = functions, given, as_before
        self.made: list[HostPart] = []

    def has(self, function: Callable[..., Any]) -> bool:
        """Whether the step computes with what a function gives."""
        return any(is_same_function(function, one) for one in self._functions)

    def need(self, function: Callable[..., Any]) -> None:
        """Have the trace begin again with a function called before the program; nothing where nobody has values.

        Raises:
            HostResultIsNeededError: it has to.
        """
        if self._oracle.knows_batch and not self.has(function) and len(self._functions) < _MOST_FUNCTIONS:
            raise HostResultIsNeededError(function)

    def result(self, function: Callable[..., Any], cost: TypicalTime, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The stand-in for what a function gives.

        Args:
            function: is called with the values of this batch.
            cost: of its calls.
            args: its arguments.
            kwargs: its arguments by name.
        """
        line = user_line_of()
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, HostResult):
                leaf.refuse()  # its function has to be called before the program, too
            if isinstance(leaf, torch.Tensor) and is_functorch_tensor(leaf):
                raise CaptureError(
                    f"{_name(function)} needs the values of tensors, and is called inside of a function of torch.func, whose "
                    f"tensors have none of their own.\n  used at {line}\nOptions: call it outside of it, with whole tensors."
                )
        tree = self._outputs.tree(
            tree_map(_as_now, (args, kwargs)), lambda tensor: self._outputs.output(tensor.detach().clone())
        )
        values = {index: self._value(index) for leaf in tree.leaves for index in output_numbers(leaf)}
        asked = self._oracle.asked

        fill = lambda: tree.fill(lambda i: values[i].clone(), values.__getitem__, self._table.values)  # noqa: E731
        # in another thread: the trace takes no notice of what the function does
        with ThreadPoolExecutor(max_workers=1) as thread:
            found = thread.submit(self._called, function, fill, _outputs_among(args, kwargs)).result()
        written = found.written
        form, plain = _form_of(found.result, function, line)
        with _disable_current_modes():  # ordinary tensors, which the host writes to before every step
            tensors = tuple(value.clone() for value in plain)
        self.made.append(HostPart(function, cost, tree, line, asked, form, tensors, written))
        inputs = iter(tensors)
        leaves = [_stand_in(leaf, next(inputs)) if isinstance(leaf, _Given) else leaf for leaf in form.leaves]
        result, contents = tree_unflatten(leaves, form.spec)
        given = tree_leaves((args, kwargs))
        for number, now in zip(written, contents, strict=True):
            tensor_behind(given[number]).copy_(tensor_behind(now))
        return result

    def _called(self, function: Callable[..., Any], fill: Callable[[], Any], outputs: set[int]) -> GivenResult:
        """The result of a function for this batch: it is called, unless an earlier trace has called it."""
        place = len(self.made)
        with reading_for_main_thread(), torch.no_grad():
            arguments = on_host(fill())
            known = self._given.known(place, function, arguments)
            if known is not None:
                return known
            own, leaves = copied_contents(arguments), tree_leaves(arguments)
            with self._as_before() as objects:
                self._given.done_in_trace(place)
                before_call = Snapshot(objects)
                result = function(*arguments[0], **arguments[1])
                done = changes_since(before_call)
            before = tree_leaves(own)
            written = tuple(k for k, one in enumerate(leaves) if k in outputs or is_written(before[k], one))
        found = GivenResult(function, own, (result, [leaves[k] for k in written]), written, done)
        self._given.note(place, found)
        return found

    def _value(self, index: int) -> Any:
        value = self._outputs.values[index]
        return self._oracle.value(value) if isinstance(value, torch.Tensor) else self._oracle.number(value)


_OUTPUTS = ("out", "output", "distances", "indices")
"""Names of NumPy and SciPy for arrays that a function is to write to."""


def writes_to_arrays(kwargs: Mapping[str, object]) -> bool:
    """Whether a function is given arrays of the trace to write to: it has to be called before the program that reads them."""
    return any(is_traced_array(kwargs.get(name)) for name in _OUTPUTS)


def _outputs_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> set[int]:
    outputs = [kwargs[name] for name in _OUTPUTS if is_traced_array(kwargs.get(name))]
    return {k for k, leaf in enumerate(tree_leaves((args, kwargs))) if any(leaf is one for one in outputs)}


def is_written(before: object, now: object) -> bool:
    """Whether an array or a tensor holds something else than before."""
    if isinstance(now, torch.Tensor) and isinstance(before, torch.Tensor):
        return (
            not torch.equal(before.nan_to_num(), now.nan_to_num()) if now.is_floating_point() else not torch.equal(before, now)
        )
    if not isinstance(now, np.ndarray) or not isinstance(before, np.ndarray):
        return False
    return not np.array_equal(before, now, equal_nan=now.dtype.kind in "fc")


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _as_now(leaf: Any) -> Any:
    # an array looks at memory that the step may write to later
    return copied_array(leaf) if is_traced_array(leaf) else leaf


def _stand_in(given: _Given, tensor: torch.Tensor) -> Any:
    own = tensor.clone()  # the step may write to it
    if given.kind is torch.Tensor:
        return own
    return own.item() if given.kind in (int, float) else traced_array(own)


def _form_of(result: object, function: Callable[..., Any], line: str) -> tuple[_Form, list[torch.Tensor]]:
    """The form of a result, and the values in it."""
    found, spec = tree_flatten(result)
    leaves: list[Any] = []
    values: list[torch.Tensor] = []
    with _disable_current_modes():
        for one in found:
            leaf, value = _leaf_of(one, function, line)
            leaves.append(leaf)
            if value is not None:
                values.append(value)
    return _Form(tuple(leaves), spec), values


def _leaf_of(one: Any, function: Callable[..., Any], line: str) -> tuple[Any, torch.Tensor | None]:
    if one is None or isinstance(one, bool | str | bytes | enum.Enum):
        return one, None
    if isinstance(one, torch.Tensor):
        kind, tensor = torch.Tensor, one.detach().cpu()
    elif isinstance(one, int | float) and not isinstance(one, np.generic):
        kind = int if isinstance(one, int) else float
        tensor = torch.tensor(one, dtype=torch.int64 if kind is int else torch.float64)
    elif isinstance(one, np.ndarray | np.generic) and fits_a_tensor(one.dtype):
        kind, tensor = (np.generic if isinstance(one, np.generic) else np.ndarray), torch.from_numpy(np.array(one))
    else:
        raise CaptureError(
            f"The step computes with the result of {_name(function)}. Expected: arrays, tensors and numbers, in tuples, lists "
            f"and dicts. Received: {type(one).__module__}.{type(one).__qualname__}.\n  used at {line}\n"
            "Options: give systolic.host a function of your own that calls it and returns what the step needs of it."
        )
    return _Given(kind, tuple(tensor.shape), tensor.dtype), tensor
