"""Structures of results: what a step returns or leaves in an attribute, with tensors replaced by numbers of outputs."""

from __future__ import annotations

import copy
import operator
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ...utilities._torch_internals import (
    TreeSpec,
    functorch_value,
    is_functorch_tensor,
    tree_flatten,
    tree_leaves,
    tree_unflatten,
)
from ._given_texts import GivenText, current_text
from ._grown_lists import GrownList
from ._host_result import HostResult
from ._made_containers import base_of, contents_of, give_attributes, is_own_dict, is_the_users_container, made_empty, put_in
from ._numpy_numbers import in_kind, is_numpy_symbol, without_kind
from ._plain_objects import attributes_of, has_attributes, is_plain_module, note_made
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
class ComputedNumber:
    """Number that Python computed of values of the step (`round(loss.item(), 4)`): the host does so again, in its numbers.

    Attributes:
        expression: from the values of `parts`.
        parts: leaves: outputs, and symbolic numbers of the step.
    """

    expression: HostExpression
    parts: tuple[NumberOutput | HostNumber, ...]


@dataclass
class MadeObject:
    """An object of a class of the user's that the step makes and that holds values: made anew after every step.

    Attributes:
        traced: the one that the trace made; its class and identity count.
        attributes: a dict of its attributes; None where these are its entries.
        contents: what it holds as a container.
    """

    traced: object
    attributes: OutputTree | None = None
    contents: OutputTree | None = None

    @property
    def inner(self) -> list[Any]:
        """The leaves of all that it holds."""
        return [leaf for tree in (self.attributes, self.contents) if tree is not None for leaf in tree.leaves]


@dataclass(frozen=True)
class MadeContainer:
    """A list, dict, set and the like that the step makes: made anew after every step, and one object wherever it is kept.

    Attributes:
        traced: the one that the trace made, whose identity counts.
        empty: one like it.
        contents: a list of elements, or a dict.
    """

    traced: Any
    empty: Any
    contents: OutputTree

    @property
    def inner(self) -> Sequence[Any]:
        """The leaves of all that it holds."""
        return self.contents.leaves


@dataclass(frozen=True)
class DeferredText:
    """Text that is formatted of values: plain pieces, and leaves with what makes text of their values."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class OutputTree:
    """A pytree whose leaves are plain values, or outputs: tensors, those that existed, numbers, arrays, host's numbers."""

    leaves: tuple[Any, ...]
    spec: TreeSpec

    def fill(
        self,
        outputs: Callable[[int], Any],
        number: Callable[[int], Any],
        symbols: Sequence[Number],
        objects: dict[int, object] | None = None,
    ) -> Any:
        """Build the structure.

        Args:
            outputs: the tensor for an output's number.
            number: the Python number for an output's number.
            symbols: the values of the step's symbolic numbers.
            objects: by id of the trace's: objects made for other trees of this run, as what was one in the step stays one; and
                the texts of its batch, where that is not the current one.
        """
        made = {} if objects is None else objects
        return tree_unflatten([filled(leaf, outputs, number, symbols, made) for leaf in self.leaves], self.spec)

    def with_host_values(self) -> OutputTree:
        """The same structure with what functions of the host gave for the last step, before the next overwrites it."""
        if not any(isinstance(leaf, HostValue) for leaf in self.leaves):
            return self
        return OutputTree(tuple(leaf.result.value if isinstance(leaf, HostValue) else leaf for leaf in self.leaves), self.spec)

    def entry(self, name: str) -> Any:
        """The part of a dict under `name`, with leaves as they are in the output tree."""
        return tree_unflatten(self.leaves, self.spec)[name]


def filled(
    leaf: object,
    outputs: Callable[[int], Any],
    number: Callable[[int], Any],
    symbols: Sequence[Number],
    objects: dict[int, object] | None = None,
) -> Any:
    """Value that one leaf of an output tree stands for; arguments as for `OutputTree.fill`."""
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
    if isinstance(leaf, GivenText):
        return current_text(leaf) if objects is None or id(leaf) not in objects else objects[id(leaf)]
    if isinstance(leaf, ComputedNumber):
        return leaf.expression([filled(part, outputs, number, symbols) for part in leaf.parts])
    if isinstance(leaf, MadeContainer | MadeObject):
        made = {} if objects is None else objects
        if id(leaf.traced) not in made:
            if isinstance(leaf, MadeContainer):
                _make_container(leaf, outputs, number, symbols, made)
            else:
                _make_object(leaf, outputs, number, symbols, made)
        return made[id(leaf.traced)]
    if isinstance(leaf, DeferredText):
        return "".join(p if isinstance(p, str) else p[1](filled(p[0], outputs, number, symbols)) for p in leaf.parts)
    return leaf


def _make_object(leaf: MadeObject, *values: Any) -> None:
    *_, objects = values
    base = base_of(leaf.traced)
    empty = object.__new__(type(leaf.traced)) if base is None else made_empty(leaf.traced, base)
    made = objects[id(leaf.traced)] = empty
    if base is not None and leaf.contents is not None:
        put_in(made, base, leaf.contents.fill(*values))
    give_attributes(made, None if leaf.attributes is None else leaf.attributes.fill(*values))
    note_made(made)


def _make_container(leaf: MadeContainer, *values: Any) -> None:
    *_, objects = values
    contents = leaf.contents.fill(*values)
    if isinstance(leaf.traced, set | frozenset):
        objects[id(leaf.traced)] = type(leaf.traced)(contents)
        return
    made = objects[id(leaf.traced)] = copy.copy(leaf.empty)
    made.update(contents) if isinstance(made, dict) else made.extend(contents)


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


def output_numbers(leaf: object, within: tuple[object, ...] = ()) -> Iterator[int]:
    """The outputs that a leaf of an output tree needs; it lies within some others, and an object may hold itself."""
    if isinstance(leaf, TensorOutput | NumberOutput | ArrayOutput):
        yield leaf.index
    if isinstance(leaf, LeafOutput) and leaf.grad is not None:
        yield leaf.grad
    if isinstance(leaf, ComputedNumber):
        for part in leaf.parts:
            yield from output_numbers(part)
    if isinstance(leaf, MadeObject | MadeContainer) and not any(leaf is one for one in within):
        for part in leaf.inner:
            yield from output_numbers(part, (*within, leaf))
    if isinstance(leaf, DeferredText):
        for part in leaf.parts:
            yield from () if isinstance(part, str) else output_numbers(part[0])


_CONTAINERS = (list, dict, OrderedDict, defaultdict, deque)
"""Those that are objects of their own where a step keeps them. A class of a library's, such as outputs of transformers, is made
anew by that library's rule."""


def plain_key(key: object) -> Any:
    """A key of a dict as Python's number: one of the trace was asked for its hash, which decided it."""
    return int(key) if isinstance(key, torch.SymInt) else key


def _with_plain_keys(structure: Any) -> Any:
    """The same structure with Python's numbers in the places of keys that are numbers of the trace."""
    if type(structure) in (list, tuple):
        return type(structure)(map(_with_plain_keys, structure))
    if type(structure) not in (dict, OrderedDict, defaultdict):
        return structure
    pairs = [(plain_key(key), _with_plain_keys(value)) for key, value in structure.items()]
    if all(key is was and value is old for (key, value), (was, old) in zip(pairs, structure.items(), strict=True)):
        return structure
    made = copy.copy(structure)
    made.clear()
    made.update(pairs)
    return made


class OutputList:
    """The outputs of a graph under construction: each distinct tensor once.

    Attributes:
        of_text: what a text is, which may have been formatted of values.
        existed: whether an object was there before the step.
        texts: those of the arguments that the step keeps or hands on.
    """

    of_text: Callable[[str], Any] = staticmethod(lambda text: text)
    existed: Callable[[object], bool] = staticmethod(lambda item: True)

    def __init__(self, table: SymbolTable) -> None:
        self.values: list[Any] = []
        self._index: dict[int, int] = {}
        self._table = table
        self._making: dict[int, MadeObject] = {}
        self.texts: list[GivenText] = []

    def add(self, value: object) -> int:
        """The number of the output that holds `value`."""
        # what is shown inside of torch.func's functions: their own tensors are none of the trace's
        while isinstance(value, torch.Tensor) and is_functorch_tensor(value):
            value = functorch_value(value)
        if id(value) not in self._index:
            self._index[id(value)] = len(self.values)
            self.values.append(value)
        return self._index[id(value)]

    def tree(
        self, structure: object, of_tensor: Callable[[torch.Tensor], Any] | None = None, *, shares: bool = False
    ) -> OutputTree:
        """`structure` with its tensors and device-side numbers made outputs.

        Args:
            structure: any pytree.
            of_tensor: makes the leaf of a tensor.
            shares: whether containers that were there before the step stay the same objects, as what the step changes in them
                is an effect of its own, and new ones become one object wherever the step keeps them.
        """
        if shares:
            return self._flattened(structure, of_tensor, lambda item: type(item) in _CONTAINERS)
        return self._flattened(_with_plain_keys(structure), of_tensor, None)

    def _contents(self, contents: object, of_tensor: Callable[[torch.Tensor], Any] | None) -> OutputTree:
        """The contents of an object or a container, in a list or a dict of ours."""
        return self._flattened(contents, of_tensor, lambda item: type(item) in _CONTAINERS and item is not contents)

    def _flattened(
        self,
        structure: object,
        of_tensor: Callable[[torch.Tensor], Any] | None,
        is_leaf: Callable[[object], bool] | None,
    ) -> OutputTree:
        leaves, spec = tree_flatten(structure, is_leaf)
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
        if isinstance(leaf, GivenText):
            self.texts.append(leaf)
            return leaf
        if isinstance(leaf, GrownList):  # no tree of PyTorch's looks into it
            leaf.was_read = True
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            return self._number(leaf)
        if isinstance(leaf, str):
            return self.of_text(leaf)
        if self._is_made(leaf) and (is_the_users_container(leaf) or self._waits(leaf, set())):
            return self._object(leaf, of_tensor)
        if isinstance(leaf, list | dict | deque | set | frozenset) and not self.existed(leaf):
            return self._container(leaf, of_tensor)
        return plain(leaf)

    def _is_made(self, item: object) -> bool:
        """Whether the step has made an object that can be made anew from what it holds."""
        is_remade = base_of(item) is not None or has_attributes(item) or is_plain_module(item)
        return is_remade and not self.existed(item)

    def _container(self, item: Any, of_tensor: Callable[[torch.Tensor], Any] | None) -> Any:
        kind = type(item)
        if kind in (set, frozenset):
            stays = kind is frozenset and not any(map(self._is_value, item))
            return item if stays else MadeContainer(item, kind(), self._contents(list(item), of_tensor))
        if kind in (list, deque):
            empty = deque(maxlen=item.maxlen) if kind is deque else []
            return MadeContainer(item, empty, self._contents(list(item), of_tensor))
        if kind in (dict, OrderedDict, defaultdict, Counter):
            empty = defaultdict(item.default_factory) if kind is defaultdict else kind()
            contents = {plain_key(key): value for key, value in item.items()}
            return MadeContainer(item, empty, self._contents(contents, of_tensor))
        return item

    def _object(self, item: object, of_tensor: Callable[[torch.Tensor], Any] | None) -> MadeObject:
        if id(item) in self._making:  # it holds itself
            return self._making[id(item)]
        made = self._making[id(item)] = MadeObject(item)
        if (base := base_of(item)) is not None:
            held = contents_of(item, base)
            plain_keys = {plain_key(key): value for key, value in held.items()} if isinstance(held, dict) else held
            made.contents = self._contents(plain_keys, of_tensor)
        if not is_own_dict(item):
            made.attributes = self._contents(attributes_of(item), of_tensor)
        del self._making[id(item)]
        return made

    def _waits(self, item: object, seen: set[int]) -> bool:
        """Whether an object holds values of the trace, or text of some, wherever in it."""
        if id(item) in seen:
            return False
        seen.add(id(item))
        base = base_of(item)
        held = [] if base is None else contents_of(item, base)
        own = {} if is_own_dict(item) else attributes_of(item)
        return any(
            self._is_value(leaf) or (self._is_made(leaf) and self._waits(leaf, seen)) for leaf in tree_leaves([held, own])
        )

    def _is_value(self, leaf: object) -> bool:
        """Whether a leaf is a value of the trace, or text of some."""
        kinds = torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool | HostResult | GivenText
        return isinstance(leaf, kinds) or is_traced_array(leaf) or (isinstance(leaf, str) and self.of_text(leaf) is not leaf)

    def _number(self, number: torch.SymInt | torch.SymFloat | torch.SymBool) -> Any:
        if is_numpy_symbol(number):
            return ComputedNumber(in_kind(operator.itemgetter(0), number.kind), (self._number(without_kind(number)),))
        if self._table.is_host_known(number):
            return HostNumber(self._table.expression(number))
        parts = self._table.parts(number)
        if parts is None:
            return NumberOutput(self.add(number))
        # Not by the program, whose numbers may be narrower than Python's: round(loss.item(), 4) would be 1.1490000486.
        expression, of = parts
        return ComputedNumber(expression, tuple(self._number(part) for part in of))

    def _array(self, array: TracedArray) -> Any:
        """The leaf of an array that stands for a tensor, or of a Python number that does (`y.tolist()`)."""
        index = self.add(array.tensor)
        return NumberOutput(index) if stands_for_number(array) else ArrayOutput(index, stands_for_scalar(array))
