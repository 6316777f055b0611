"""Values of a graph's nodes, of which some are rows of arrays that hold one value for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from torch import fx

from ._channels_last import ordinary


class Stack:
    """A value of every layer: arrays with a first dimension for the layers.

    Args:
        arrays: one, or a tuple of them where an op gives several.
        size: how many layers.
    """

    def __init__(self, arrays: Any, size: int) -> None:
        self.arrays = arrays
        self.size = size
        self._rows: dict[int, Any] = {}

    def row(self, index: int) -> Any:
        """The value of one layer."""
        if index not in self._rows:
            self._rows[index] = jax.tree.map(lambda array: array[index], self.arrays)
        return self._rows[index]


class Row:
    """The value of one layer, which is cut out of the stack when somebody uses it alone."""

    __slots__ = ("index", "stack")

    def __init__(self, stack: Stack, index: int) -> None:
        self.stack = stack
        self.index = index


def alone(value: object) -> Any:
    """A value as ops take it."""
    return value.stack.row(value.index) if isinstance(value, Row) else value


class Values(dict[fx.Node, Any]):
    """Values by node. What is looked up is what ops take; what is kept may be a `Row`."""

    def __init__(self) -> None:
        super().__init__()
        self._stacks: dict[tuple[fx.Node, ...], Stack] = {}

    def __getitem__(self, node: fx.Node) -> Any:
        return alone(super().__getitem__(node))

    def stacked(self, nodes: tuple[fx.Node, ...]) -> Any:
        """Values of several layers as one: that of an earlier loop, or a new one for all loops that take these."""
        if nodes not in self._stacks:
            rows = [super(Values, self).__getitem__(node) for node in nodes]
            self._stacks[nodes] = Stack(stack_of(rows), len(nodes))
        return self._stacks[nodes].arrays

    def know(self, nodes: tuple[fx.Node, ...], stack: Stack) -> None:
        """Take note of values of several layers that are there as one."""
        self._stacks[nodes] = stack


def stack_of(rows: Sequence[Any]) -> Any:
    """Values of several layers as arrays with a first dimension for the layers; none is copied that is there already."""
    first = rows[0]
    if isinstance(first, Row) and all(
        isinstance(row, Row) and row.stack is first.stack and row.index == first.index + at for at, row in enumerate(rows)
    ):
        size = len(rows)
        if size == first.stack.size:
            return first.stack.arrays
        return jax.tree.map(lambda array: array[first.index : first.index + size], first.stack.arrays)
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *[ordinary(alone(row)) for row in rows])
