"""Nodes of a trace beside those of other traces of the same step; see `_bounded_sizes.py`."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

Twins = Mapping[fx.Node, fx.Node]
"""By node of the newest trace: the same node of another one."""


def is_item(node: fx.Node) -> bool:
    """Whether a node takes a number out of a tensor: `.item()`."""
    return node.target is aten._local_scalar_dense.default


def same(node: fx.Node, twin: fx.Node) -> bool:
    """Whether two nodes have the same numbers among their arguments, and values of the same shape."""
    return (
        same_numbers(node.args, twin.args)
        and same_numbers(node.kwargs, twin.kwargs)
        and _shapes(node.meta.get("val")) == _shapes(twin.meta.get("val"))
    )


def same_numbers(one: Any, other: Any) -> bool:
    return str(fx.map_arg(one, _hidden)) == str(fx.map_arg(other, _hidden))


def _hidden(source: fx.Node) -> Any:
    del source
    return "%"


def _shapes(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    return tuple(map(_shapes, value)) if isinstance(value, list | tuple) else type(value)


def sources(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node is computed from, in the order of its arguments."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), lambda source: (found.append(source), source)[1])
    return found
