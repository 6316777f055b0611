"""Structures of results: what a step returns or leaves in an attribute, with tensors replaced by numbers of outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from ._symbols import HostExpression, Number, SymbolTable


@dataclass(frozen=True)
class Out:
    """The program's output with this number."""

    index: int


@dataclass(frozen=True)
class OutNumber:
    """Like `Out`, for a value that user code holds as a Python number (`loss.item()`)."""

    index: int


@dataclass(frozen=True)
class Host:
    """A number computed on the host from the step's symbolic numbers."""

    expression: HostExpression


@dataclass(frozen=True)
class Template:
    """A pytree whose leaves are `Out`, `OutNumber`, `Host`, or plain values."""

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

    def entry(self, name: str) -> Any:
        """The part of a dict under `name`, with leaves as they are in the template."""
        return tree_unflatten(self.leaves, self.spec)[name]


def filled(leaf: Any, outputs: Callable[[int], Any], number: Callable[[int], Any], symbols: Sequence[Number]) -> Any:
    """What one leaf of a template stands for."""
    if isinstance(leaf, Out):
        return outputs(leaf.index)
    if isinstance(leaf, OutNumber):
        return number(leaf.index)
    if isinstance(leaf, Host):
        return leaf.expression(symbols)
    return leaf


class OutputList:
    """The outputs of a graph under construction: each distinct tensor once."""

    def __init__(self, table: SymbolTable) -> None:
        self.values: list[Any] = []
        self._index: dict[int, int] = {}
        self._table = table

    def add(self, value: Any) -> int:
        """The number of the output that holds `value`."""
        if id(value) not in self._index:
            self._index[id(value)] = len(self.values)
            self.values.append(value)
        return self._index[id(value)]

    def template(self, structure: Any) -> Template:
        """`structure` with its tensors and device-side numbers made outputs."""
        leaves, spec = tree_flatten(structure)
        return Template(tuple(self._leaf(leaf) for leaf in leaves), spec)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return Out(self.add(leaf))
        if isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool):
            if self._table.is_host_known(leaf):
                return Host(self._table.expression(leaf))
            return OutNumber(self.add(leaf))
        return leaf
