"""Numbers that a step looks up by one of the host's: `self.momentum[self.global_step]`, as schedules are written.

A place in a list or in an array is a plain number for Python, so each would have a program. Where a trace is asked for one, and
the line looks up a number in a list, a tuple or an array that is an attribute of a module, the trace begins again: reading the
attribute then gives a table, whose numbers are looked up by the host before every step, as random numbers are drawn.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from ...utilities._torch_internals import free_unbacked_symbols
from .._capture_thread import replaced
from .._errors import is_user_frame
from ._object_graph import Attribute
from ._source_lines import expression_at, named_object
from ._step_draws import are_numbers

LookUp = Callable[[Any, torch.SymInt], Any]
"""From what holds the numbers and a place in it to the number."""


class TableIsAskedError(Exception):
    """A step looks up a number by one of the host's: the trace must begin again with a table in the attribute's place."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__()
        self.attribute = attribute


class TableIsWrittenError(Exception):
    """A step writes to lists that it looks numbers up in: the trace must begin again without tables in their place."""

    def __init__(self, attributes: Collection[Attribute]) -> None:
        super().__init__()
        self.attributes = attributes


@dataclass
class TableChoice:
    """The attributes of modules that the traces of a step read as tables, as far as they have told.

    Attributes:
        wanted: those in which the step looks up numbers.
        refused: those of them that it writes to.
    """

    wanted: set[Attribute] = field(default_factory=set)
    refused: set[Attribute] = field(default_factory=set)

    def note(self, error: TableIsAskedError | TableIsWrittenError) -> None:
        """Learn from how a trace ended."""
        if isinstance(error, TableIsAskedError):
            self.wanted.add(error.attribute)
        else:
            self.wanted -= set(error.attributes)
            self.refused |= set(error.attributes)


@dataclass
class LookupTables:
    """The tables of one trace.

    Attributes:
        choice: which attributes are read as tables.
        look_up: gives the trace a number.
    """

    choice: TableChoice
    look_up: LookUp
    _lists: list[tuple[Attribute, _ListTable]] = field(default_factory=list)

    def read(self, attribute: Attribute, value: Any) -> Any:
        """The result of reading an attribute: a table, or the value."""
        if attribute not in self.choice.wanted or not _holds_numbers(value):
            return value
        if isinstance(value, np.ndarray):
            table = value.view(_ArrayTable)
            table.origin, table.look_up = value, self.look_up
            return table
        if isinstance(value, tuple):
            return _TupleTable.of(value, self.look_up)
        table = _ListTable.of(value, self.look_up)
        self._lists.append((attribute, table))
        return table

    def require_unwritten(self) -> None:
        """Raise where the step has written to a list, of which it had a copy."""
        if written := [attribute for attribute, table in self._lists if list(table) != table.origin]:
            raise TableIsWrittenError(written)

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Inside the block, a plain number that is asked of a symbolic one to look up a number ends the trace.

        Raises:
            TableIsAskedError: where it is looked up.
            TableIsWrittenError: a table was one that the step writes to.
        """
        original: Any = torch.SymInt.__index__
        asked: list[TableIsAskedError] = []

        def place(number: torch.SymInt) -> int:
            frame = sys._getframe(2)  # the function that chooses between threads is in between
            if is_user_frame(frame.f_code.co_filename) and not free_unbacked_symbols(number):
                attribute = _attribute_in(frame)
                if attribute is not None and attribute not in self.choice.wanted | self.choice.refused:
                    asked.append(TableIsAskedError(attribute))
                    raise asked[0]
            return original(number)

        try:
            with replaced(torch.SymInt, "__index__", place):
                yield
        except Exception as error:
            if asked and asked[0] is not error:
                raise asked[0] from None  # NumPy has made an error of its own of it
            raise
        if asked:
            raise asked[0]  # somebody's `except` has swallowed it
        self.require_unwritten()


def _attribute_in(frame: Any) -> Attribute | None:
    """The attribute of a module in which the instruction that a frame is at looks up a number."""
    node = expression_at(frame.f_code, frame.f_lasti)
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Attribute):
        return None
    owner = node.value.value
    module = named_object(owner, frame) if isinstance(owner, ast.Name) else None
    if not isinstance(module, nn.Module) or not _holds_numbers(vars(module).get(node.value.attr)):
        return None
    return id(module), node.value.attr


def _holds_numbers(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return type(value) is np.ndarray and value.ndim == 1 and value.dtype.kind in "iuf"
    return type(value) in (list, tuple) and len(cast(Sized, value)) > 0 and are_numbers(cast(Iterable[object], value))


class _ArrayTable(np.ndarray[Any, Any]):
    """An array of numbers, which are looked up by symbolic ones, too; it shares the memory of the one that it stands for."""

    origin: np.ndarray[Any, Any] | None = None
    look_up: LookUp | None = None

    def __getitem__(self, index: Any) -> Any:
        if self.look_up is not None and isinstance(index, torch.SymInt):
            return self.look_up(self.origin, index)
        return _plain_array(super().__getitem__(index))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        del context
        return array[()] if return_scalar else _plain_array(array)


def _plain_array(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, np.ndarray) else value


class _ListTable(list[Any]):
    """A copy of a list of numbers, which are looked up by symbolic ones, too."""

    origin: list[Any]
    look_up: LookUp

    @classmethod
    def of(cls, values: list[Any], look_up: LookUp) -> _ListTable:
        table = cls(values)
        table.origin, table.look_up = values, look_up
        return table

    def __getitem__(self, index: Any) -> Any:
        return self.look_up(self.origin, index) if isinstance(index, torch.SymInt) else super().__getitem__(index)


class _TupleTable(tuple[Any, ...]):
    """A tuple of numbers, which are looked up by symbolic ones, too."""

    origin: tuple[Any, ...]
    look_up: LookUp

    @classmethod
    def of(cls, values: tuple[Any, ...], look_up: LookUp) -> _TupleTable:
        table = cls(values)
        table.origin, table.look_up = values, look_up
        return table

    def __getitem__(self, index: Any) -> Any:
        return self.look_up(self.origin, index) if isinstance(index, torch.SymInt) else super().__getitem__(index)


def without_table(value: Any) -> Any:
    """The list, tuple or array that a table stands for; any other value as it is."""
    if isinstance(value, _ArrayTable | _ListTable | _TupleTable) and value.origin is not None:
        return value.origin
    return value
