"""Elements that a mask of the first ones selects, as slices: `x[:, :n]` with an `n` that is a value.

A trace selects them by a mask, so that one program can be made for all sizes, and a mask selects by positions. A gather by
positions, and a scatter for its gradient, read and write one row after the other; a slice is there already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ._bounded_positions import PARTS_OF_POSITIONS
from ._rewrites import arguments_of, copy_of

aten = torch.ops.aten


def with_prefixes_as_slices(graph: fx.Graph) -> fx.Graph:
    """A copy of a graph in which nothing is read or added by positions that count from the first one on.

    Behind what a mask selects, positions of a graph for all sizes may be any (`_bounded_sizes.py`), so a slice may have what
    lies there; what is added there are zeros.
    """
    if not any(map(_is_mask, graph.nodes)):
        return graph
    copy = copy_of(graph)
    for node in list(copy.nodes):
        written = _WAYS[node.target](node) if node.target in _WAYS else None
        if written is not None:
            node.replace_all_uses_with(written)
            copy.erase_node(node)
    for node in reversed(list(copy.nodes)):
        if not node.users and (_is_prefix(node) or node.target in (*PARTS_OF_POSITIONS, aten.masked_fill.Scalar)):
            copy.erase_node(node)
    return copy


def _is_mask(node: fx.Node) -> bool:
    """Whether a node is a mask of the first elements: `arange(length) < n`."""
    if node.target is not aten.lt.Tensor:
        return False
    places, number = arguments_of(node)
    return places.target is aten.arange.default and _value(number).dim() == 0


def _is_prefix(node: fx.Node) -> bool:
    """Whether a node is the positions of the first elements."""
    return node.target is aten.nonzero_static.default and _is_mask(arguments_of(node)[0])


def _along(node: fx.Node) -> tuple[int, int] | None:
    """The one dimension that an op indexes by a prefix, and how many positions these are; None for any other op."""
    source, indices = arguments_of(node)[:2]
    places = [place for place, one in enumerate(indices) if one is not None]
    if len(places) != 1:
        return None
    index = indices[places[0]]
    count, length = _value(index).numel(), _value(source).shape[places[0]]
    # in a graph for all sizes what does not count is the first position
    if index.target is aten.masked_fill.Scalar and index.args[2] == 0:
        index = index.args[0]
    while index.target in PARTS_OF_POSITIONS:
        index = index.args[0]
    return (places[0], count) if _is_prefix(index) and count <= length and _value(index).shape[1] == 1 else None


def _sliced(node: fx.Node) -> fx.Node | None:
    if (found := _along(node)) is None:
        return None
    along, count = found
    return _called(node, aten.slice.Tensor, arguments_of(node)[0], along, 0, count)


def _put(node: fx.Node) -> fx.Node | None:
    """Values that are written at a mask, as the first ones; those that are added at positions, with zeros behind them."""
    target, indices, values, *accumulate = arguments_of(node)
    if accumulate in ([], [False]):
        if len(indices) != 1 or not _is_mask(indices[0]) or _value(values).dim() == 0:
            return None
        count = _value(values).shape[0]
        return (
            _called(node, aten.slice_scatter.default, target, values, 0, 0, count) if _fit(target, values, 0, count) else None
        )
    found = _along(node)
    if found is None or not _fit(target, values, *found):
        return None
    padded = _padded(node, target, values, *found)
    if target.target in (aten.new_zeros.default, aten.zeros.default):
        return padded
    return _called(node, aten.add.Tensor, target, padded)


def _scattered(node: fx.Node) -> fx.Node | None:
    """Values that go to the elements of a mask in their order, in a graph for all sizes: each to the place it has."""
    target, mask, values = arguments_of(node)
    view = arguments_of(mask)[0] if mask.target is aten.expand.default else None
    if view is None or view.target is not aten.view.default or not _is_mask(arguments_of(view)[0]):
        return None
    length, count = _value(target).shape[0], _value(values).shape[0] if _value(values).dim() else 0
    if list(_value(view).shape) != [length, *[1] * (_value(target).dim() - 1)] or not _fit(target, values, 0, count):
        return None
    return _called(node, aten.where.self, mask, _padded(node, target, values, 0, count), target)


def _fit(target: fx.Node, values: fx.Node, along: int, count: int) -> bool:
    """Whether values are as large as what they are put into, but for one dimension, in which they are not larger."""
    whole, given = _value(target), _value(values)
    expected = (*whole.shape[:along], count, *whole.shape[along + 1 :])
    return given.shape == expected and given.dtype == whole.dtype and count <= whole.shape[along]


def _padded(node: fx.Node, target: fx.Node, values: fx.Node, along: int, count: int) -> fx.Node:
    whole = _value(target)
    behind = [0] * (2 * (whole.dim() - along))
    behind[-1] = whole.shape[along] - count
    return _called(node, aten.constant_pad_nd.default, values, behind, 0) if behind[-1] else values


_WAYS: dict[Any, Callable[[fx.Node], fx.Node | None]] = {
    aten.index.Tensor: _sliced, aten.index_put.default: _put, aten.masked_scatter.default: _scattered,
}  # fmt: skip
"""By op: what stands in its place; None where it stays."""


def _called(node: fx.Node, target: Any, *args: Any) -> fx.Node:
    with node.graph.inserting_before(node):
        written = node.graph.call_function(target, args)
    written.meta = dict(node.meta)
    return written


def _value(node: fx.Node) -> torch.Tensor:
    return node.meta["val"]
