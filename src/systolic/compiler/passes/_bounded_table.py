"""Table of the rules for bounded arrays, and the words they are written in: arguments, dimensions of what is broadcast."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, NotBoundedError, Size
from ._bounded_writer import Writer

aten = torch.ops.aten

Rule = Callable[[Writer, fx.Node], None]
RULES: dict[Any, Rule] = {}
"""By op: its rule."""
PARTED: set[Any] = set()
"""Ops that do not need all that counts of a size to come first."""


def rule_for(*ops: Any, parted: bool = False) -> Callable[[Rule], Rule]:
    """Add a rule to the table.

    Args:
        ops: that it is for.
        parted: whether it is right for sizes that have what does not count behind each of their parts, too: where an element
            stands does not matter, or the rule asks.
    """

    def add(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, rule))
        PARTED.update(ops if parted else ())
        return rule

    return add


def node_of(value: Any) -> fx.Node:
    if not isinstance(value, fx.Node):
        raise NotBoundedError("a number in place of a tensor")
    return value


def op_of(node: fx.Node) -> Any:
    return node.target


def args_of(node: fx.Node) -> tuple[Any, ...]:
    return node.args


def dims_of(writer: Writer, value: Any) -> Dims:
    return writer.dims[node_of(value)]


def value_of(value: Any) -> torch.Tensor:
    return node_of(value).meta["val"]


def refuse_unless(condition: bool, what: str) -> None:
    if not condition:
        raise NotBoundedError(what)


def place_of(dim: Any, rank: int) -> int:
    refuse_unless(isinstance(dim, int) and rank > 0, "a dimension")
    return dim % rank


def dim_of(node: fx.Node, rank: int) -> int:
    """The dimension that an op's second argument names, the first one by default."""
    return place_of(args_of(node)[1] if len(args_of(node)) > 1 else 0, rank)


def refuse_parts(size: Size | None) -> None:
    """Refuse a size that has what does not count behind each of its parts."""
    refuse_unless(size is None or not size.part, "a size that is joined with one before it")


def reduced(own: Dims, gone: Collection[int], keeps: bool) -> Dims:
    """The dimensions that are left of a tensor's when some are reduced, and stay as one element or do not."""
    return tuple(None if place in gone else size for place, size in enumerate(own) if keeps or place not in gone)


def together(parts: Iterable[tuple[Sequence[int], Dims]]) -> Dims:
    """The dimensions of what tensors of these shapes are broadcast to."""
    parts = list(parts)
    rank = max((len(shape) for shape, _ in parts), default=0)
    found: list[Size | None] = []
    for place in range(-rank, 0):
        here = [(shape[place], dims[place]) for shape, dims in parts if len(shape) >= -place]
        sizes = {size for _, size in here if size is not None}
        wide = [n for n, size in here if size is None and n != 1]
        refuse_unless(len(sizes) <= 1 and not (sizes and wide), "tensors of different sizes")
        found.append(next(iter(sizes), None))
    return tuple(found)
