"""Structures of results: what a step returns or leaves in an attribute, with tensors replaced by numbers of outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...utilities._torch_internals import TreeSpec, functorch_value, is_functorch_tensor, tree_flatten, tree_unflatten
from ._grown_lists import GrownList
from ._host_result import HostResult
from ._size_reads import plain
from ._symbols import HostExpression, Number, SymbolTable
from ._traced_arrays import TracedArray, is_traced_array, stands_for_number, stands_for_scalar


@dataclass(frozen=True)
class TensorOutput:
    """The program's output with this number."""

    index: int


@dataclass(frozen=True)
class LeafOutput(TensorOutput):
    """A tensor that is a leaf of autograd: a new parameter, or another tensor that requires a gradient.

    Attributes:
        is_parameter: whether it is an `nn.Parameter`.
        requires_grad: whether it requires a gradient.
        grad: the number of the output that is its `.grad`, if it has one.
    """

    is_parameter: bool
    requires_grad: bool
    grad: int | None


class Owner(Protocol):
    """Something that holds a tensor object of the user's."""

    tensor: torch.Tensor


@dataclass(frozen=True)
class ViewOutput(TensorOutput):
    """Like `TensorOutput`, for a view of a tensor of the state; `view_base` tells it later."""

    base: Owner


@dataclass(frozen=True)
class ExistingTensor:
    """A tensor object that was there before the step, or (`aliased`) another object over its memory."""

    owner: Owner
    aliased: bool

    def object(self) -> torch.Tensor:
        """The object."""
        return self.owner.tensor.detach() if self.aliased else self.owner.tensor


@dataclass(frozen=True)
class NumberOutput:
    """Like `TensorOutput`, for a value that user code holds as a Python number (`loss.item()`)."""

    index: int


@dataclass(frozen=True)
class ArrayOutput:
    """Like `TensorOutput`, for a value that user code holds as an array of NumPy (`y.cpu().numpy()`).

    Attributes:
        is_scalar: whether it is one of NumPy's scalars, as its reductions give.
    """

    index: int
    is_scalar: bool


@dataclass(frozen=True)
class HostValue:
    """Result of a function of the host, after the step; its call comes before whatever keeps or shows it."""

    result: HostResult


@dataclass(frozen=True)
class HostNumber:
    """A number computed on the host from the step's symbolic numbers."""

    expression: HostExpression


@dataclass(frozen=True)
class DeferredText:
    """Text that is formatted of values: plain pieces, and leaves with what makes text of their values."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class OutputTree:
    """A pytree whose leaves are plain values, or outputs: tensors, those that existed, numbers, arrays, host's numbers."""

    leaves: tuple[Any, ...]
    spec: TreeSpec

    def fill(self, outputs: Callable[[int], Any], number: Callable[[int], Any], symbols: Sequence[Number]) -> Any:
        """Build the structure.

        Args:
            outputs: the tensor for an output's number.
            number: the Python number for an output's number.
            symbols: the values of the step's symbolic numbers.
        """
        return tree_unflatten([filled(leaf, outputs, number, symbols) for leaf in self.leaves], self.spec)

    def with_host_values(self) -> OutputTree:
        """The same structure with what functions of the host gave for the last step, before the next overwrites it."""
        if not any(isinstance(leaf, HostValue) for leaf in self.leaves):
            return self
        return OutputTree(tuple(leaf.result.value if isinstance(leaf, HostValue) else leaf for leaf in self.leaves), self.spec)

    def entry(self, name: str) -> Any:
        """The part of a dict under `name`, with leaves as they are in the output tree."""
        return tree_unflatten(self.leaves, self.spec)[name]


def filled(leaf: object, outputs: Callable[[int], Any], number: Callable[[int], Any], symbols: Sequence[Number]) -> Any:
    """Value that one leaf of an output tree stands for."""
    if isinstance(leaf, LeafOutput):
        return _autograd_leaf(leaf, outputs)
    if isinstance(leaf, ViewOutput):
        tensor = outputs(leaf.index)
        tensor._systolic_base = leaf.base.tensor
        return tensor
    if isinstance(leaf, ExistingTensor):
        return leaf.object()
    if isinstance(leaf, TensorOutput):
        return outputs(leaf.index)
    if isinstance(leaf, NumberOutput):
        return number(leaf.index)
    if isinstance(leaf, ArrayOutput):
        # host sync: user code keeps the array outside of the step, and may write to it; JAX's memory is read-only
        array = outputs(leaf.index).numpy().copy()
        return array[()] if leaf.is_scalar else array
    if isinstance(leaf, HostValue):
        return leaf.result.or_stand_in()
    if isinstance(leaf, HostNumber):
        return leaf.expression(symbols)
    if isinstance(leaf, DeferredText):
        return "".join(p if isinstance(p, str) else p[1](filled(p[0], outputs, number, symbols)) for p in leaf.parts)
    return leaf


def view_base(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor of the state that a tensor was a view of in the step that stored it."""
    return getattr(tensor, "_systolic_base", None)


def _autograd_leaf(leaf: LeafOutput, outputs: Callable[[int], Any]) -> torch.Tensor:
    tensor = outputs(leaf.index)
    if leaf.is_parameter:
        tensor._is_param = True
    tensor.requires_grad_(leaf.requires_grad)
    if leaf.grad is not None:
        tensor.grad = outputs(leaf.grad)
    return tensor


def output_numbers(leaf: object) -> Iterator[int]:
    """The outputs that a leaf of an output tree needs."""
    if isinstance(leaf, TensorOutput | NumberOutput | ArrayOutput):
        yield leaf.index
    if isinstance(leaf, LeafOutput) and leaf.grad is not None:
        yield leaf.grad
    if isinstance(leaf, DeferredText):
        for part in leaf.parts:
            yield from () if isinstance(part, str) else output_numbers(part[0])


class OutputList:
    """The outputs of a graph under construction: each distinct tensor once.

    Attributes:
        of_text: what a text is, which may have been formatted of values.
    """

    of_text: Callable[[str], Any] = staticmethod(lambda text: text)

    def __init__(self, table: SymbolTable) -> None:
        self.values: list[Any] = []
        self._index: dict[int, int] = {}
        self._table = table

    def add(self, value: object) -> int:
        """The number of the output that holds `value`."""
        # what is shown inside of torch.func's functions: their own tensors are none of the trace's
        while isinstance(value, torch.Tensor) and is_functorch_tensor(value):
            value = functorch_value(value)
        if id(value) not in self._index:
            self._index[id(value)] = len(self.values)
            self.values.append(value)
        return self._index[id(value)]

    def tree(self, structure: object, of_tensor: Callable[[torch.Tensor], Any] | None = None) -> OutputTree:
        """`structure` with its tensors and device-side numbers made outputs; `of_tensor` makes the leaf of a tensor."""
        leaves, spec = tree_flatten(structure)
        return OutputTree(tuple(self.leaf(leaf, of_tensor) for leaf in leaves), spec)

    def output(self, tensor: torch.Tensor) -> TensorOutput:
        """The leaf of a tensor that is an output."""
        return TensorOutput(self.add(tensor))

    def leaf(self, leaf: object, of_tensor: Callable[[torch.Tensor], Any] | None = None) -> Any:
        """The leaf of an output tree that a value becomes."""
        if isinstance(leaf, torch.Tensor):
            return TensorOutput(self.add(leaf)) if of_tensor is None else of_tensor(leaf)
        if is_traced_array(leaf):
            return self._array(leaf)
        if isinstance(leaf, HostResult):
            return HostValue(leaf)
        if isinstance(leaf, GrownList):  # no tree of PyTorch's looks into it
            leaf.was_read = True
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            if self._table.is_host_known(leaf):
                return HostNumber(self._table.expression(leaf))
            return NumberOutput(self.add(leaf))
        return self.of_text(leaf) if isinstance(leaf, str) else plain(leaf)

    def _array(self, array: TracedArray) -> Any:
        """The leaf of an array that stands for a tensor, or of a Python number that does (`y.tolist()`)."""
        index = self.add(array.tensor)
        return NumberOutput(index) if stands_for_number(array) else ArrayOutput(index, stands_for_scalar(array))
