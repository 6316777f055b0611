"""Rows of products in the order of the batch, in graphs for several devices.

`nn.MultiheadAttention` and whatever else has the length first multiplies matrices of [length * batch] rows. The devices share
the batch: the rows of one of them then lie all over the matrix, no sharding says so, and the partitioner fetches the whole
activation to every device around each product. Rows are multiplied one by one, so they may as well stand batch first, where a
device's rows are one block; a product that sums over rows needs only that both its matrices have them in one order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ._rewrites import VIEWS, copy_of, drop_unused

aten = torch.ops.aten

_PRODUCTS = (aten.mm.default, aten.addmm.default)

Leading = tuple[int, int]
"""The sizes of the two dimensions that rows are made of: the length, and the batch."""


def with_rows_by_batch(graph: fx.Graph) -> fx.Graph:
    """A copy of `graph` in which rows of [length * batch] are rows of [batch * length]; the graph itself where it has none."""
    views = [(node, leading) for node in graph.nodes if (leading := _leading(node)) is not None]
    swapped = {leading for node, leading in views if _is_swapped(_source(node))}
    if not swapped:
        return graph
    copy = copy_of(graph)
    rows = _Rows(copy, swapped)
    for node in list(copy.nodes):
        rows.reorder(node)
    drop_unused(copy)
    return copy


def _leading(node: fx.Node) -> Leading | None:
    """The two dimensions that a view joins to the rows of a matrix; None for another node."""
    if node.target not in VIEWS or node.meta["val"].dim() != 2:
        return None
    shape, rows = _source(node).meta["val"].shape, node.meta["val"].shape[0]
    return (shape[0], shape[1]) if len(shape) > 2 and shape[0] * shape[1] == rows and min(shape[:2]) > 1 else None


def _source(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node), "a view has a source"
    return source


def _is_swapped(node: fx.Node) -> bool:
    """Whether the second dimension was the first one before: the batch, in nearly all models."""
    while node.target is aten.clone.default:
        node = _source(node)
    arguments: tuple[Any, ...] = node.args
    if node.target is aten.transpose.int:
        rank = node.meta["val"].dim()
        return sorted(axis % rank for axis in arguments[1:]) == [0, 1]
    return node.target is aten.permute.default and arguments[1][1] % node.meta["val"].dim() == 0


def _summed_over(product: fx.Node) -> tuple[fx.Node, ...]:
    """The two matrices over whose rows a product sums, the gradient of a weight; empty for another node."""
    if product.target not in _PRODUCTS:
        return ()
    left, right = product.args[-2:]
    if not isinstance(left, fx.Node) or not isinstance(right, fx.Node) or left.target is not aten.t.default:
        return ()
    return left.all_input_nodes[0], right


class _Rows:
    """Puts the batch first in the rows of products.

    Args:
        graph: is changed.
        swapped: which two dimensions have the batch second.
    """

    def __init__(self, graph: fx.Graph, swapped: set[Leading]) -> None:
        self._graph = graph
        self._swapped = swapped
        self._by_batch: dict[fx.Node, fx.Node] = {}
        self._batch_second = {node for node in graph.nodes if self._shaped(node) is not None and _is_swapped(_source(node))}
        for product in graph.nodes:
            pair = _summed_over(product)
            if self._batch_second.intersection(pair):
                self._batch_second.update(pair)

    def reorder(self, node: fx.Node) -> None:
        """Give a product, or a sum over rows, rows in the order of the batch."""
        if node.target in _PRODUCTS:
            at = 0 if node.target is aten.mm.default else 1
            arguments: tuple[Any, ...] = node.args
            left, right = arguments[at], arguments[at + 1]
            if (leading := self._known(left)) is not None:
                if self._is_row_wise(node, arguments[:at], leading):
                    node.update_arg(at, self._rows(left, leading))
                    self._split_by_batch(node, leading)
            elif pair := _summed_over(node):
                leading = self._known(pair[0])
                if leading is not None and leading == self._known(pair[1]):
                    node.update_arg(at, self._added(node, aten.t.default, self._rows(pair[0], leading)))
                    node.update_arg(at + 1, self._rows(right, leading))
        elif node.target is aten.sum.dim_IntList and node.args[1] == [0]:
            rows = node.all_input_nodes[0]
            if (leading := self._known(rows)) is not None:
                node.update_arg(0, self._rows(rows, leading))

    def _known(self, node: object) -> Leading | None:
        """The two dimensions of a matrix of rows that has the batch second."""
        leading = self._shaped(node)
        if leading is None or leading[0] != leading[1]:
            return leading
        # where the length is as large as the batch, the sizes do not say which is which
        return leading if node in self._batch_second else None

    def _shaped(self, node: object) -> Leading | None:
        """The two dimensions of a matrix of rows by their sizes; the second may be split further, into heads."""
        if not isinstance(node, fx.Node) or node.target not in VIEWS or node.meta["val"].dim() != 2:
            return None
        return self._leading_of(_source(node).meta["val"].shape, node.meta["val"].shape[0])

    def _leading_of(self, shape: torch.Size, rows: int) -> Leading | None:
        for length, batch in self._swapped:
            if len(shape) > 2 and rows == length * batch and shape[0] == length and shape[1] % batch == 0:
                return length, batch
        return None

    def _is_row_wise(self, product: fx.Node, bias: tuple[Any, ...], leading: Leading) -> bool:
        """Whether all that is made of a product is split into the two dimensions again, and its bias has no rows."""
        rows = product.meta["val"].shape[0]
        split = all(u.target in VIEWS and self._leading_of(u.meta["val"].shape, rows) == leading for u in product.users)
        return split and all(one.meta["val"].dim() == 1 for one in bias)

    def _rows(self, view: fx.Node, leading: Leading) -> fx.Node:
        """The matrix with the batch first in its rows."""
        if view not in self._by_batch:
            shape = list(view.meta["val"].shape)
            split = self._added(view, aten.reshape.default, _source(view), [*leading, shape[1]])
            swapped = self._added(view, aten.transpose.int, split, 0, 1)
            self._by_batch[view] = self._added(view, aten.reshape.default, swapped, shape)
        return self._by_batch[view]

    def _split_by_batch(self, product: fx.Node, leading: Leading) -> None:
        """Split a product's rows into batch and length, and swap these back for what follows."""
        length, batch = leading
        for view in list(product.users):
            split = self._added(view, aten.reshape.default, product, [batch, length, product.meta["val"].shape[1]])
            swapped = self._added(view, aten.transpose.int, split, 0, 1)
            whole = self._added(view, aten.reshape.default, swapped, list(view.meta["val"].shape))
            view.replace_all_uses_with(whole)

    def _added(self, before: fx.Node, target: OpOverload, source: fx.Node, *arguments: Any) -> fx.Node:
        """A node of the graph in front of another one, of whose module and line it is."""
        with self._graph.inserting_before(before):
            node = self._graph.call_function(target, (source, *arguments))
        node.meta = {**before.meta, "val": target(source.meta["val"], *arguments)}
        return node
