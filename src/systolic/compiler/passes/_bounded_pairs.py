"""Matrices over pairs of what a mask selects, as contrastive losses make them; see `_bounded_sizes.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims
from ._bounded_table import args_of, dims_of, node_of, place_of, refuse_unless, rule_for
from ._bounded_writer import Writer

aten = torch.ops.aten


@rule_for(aten.eye.default, aten.eye.m)
def _eye(writer: Writer, node: fx.Node) -> None:
    sizes = [writer.length(writer.numbers_at(node, at, 0)) for at in range(len(args_of(node)))]
    rows, columns = sizes[0], sizes[-1]
    dims = (rows[1], columns[1])
    writer.put(node, writer.call(aten.eye.m, rows[0], columns[0], dims=dims, **writer.options(node)), dims)


@rule_for(aten.tril.default, aten.triu.default)
def _triangle(writer: Writer, node: fx.Node) -> None:
    """Elements are in it or not by their places alone."""
    writer.same(node)
    dims = dims_of(writer, args_of(node)[0])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


def _of_diagonal(node: fx.Node, rank: int, first: int) -> tuple[int, int]:
    offset, one, other = (*args_of(node)[first:], *(0, 0, 1)[len(args_of(node)) - first :])
    refuse_unless(offset == 0, "a diagonal beside the one in the middle")
    return place_of(one, rank), place_of(other, rank)


@rule_for(aten.diagonal.default, aten.diagonal_copy.default)
def _diagonal(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    one, other = _of_diagonal(node, len(own), 1)
    refuse_unless(own[one] is own[other], "a diagonal of what is no square")
    dims = (*(size for place, size in enumerate(own) if place not in (one, other)), own[one])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.diagonal_backward.default)
def _diagonal_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 2, 3, 4)
    sizes = writer.sizes_at(node, 1)
    dims = tuple(size for _, size in sizes)
    one, other = _of_diagonal(node, len(dims), 2)
    expected = (*(size for place, size in enumerate(dims) if place not in (one, other)), dims[one])
    refuse_unless(dims[one] is dims[other] and dims_of(writer, args_of(node)[0]) == expected, "a diagonal of what is no square")
    grad, _, *rest = writer.arguments(node)
    writer.put(node, writer.call(node.target, grad, [n for n, _ in sizes], *rest, dims=dims), dims)


@rule_for(aten._cdist_forward.default)
def _distances(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    one, other = (dims_of(writer, given) for given in args_of(node)[:2])
    dims = (*_batch(one, other), one[-2], other[-2])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


def _batch(one: Dims, other: Dims) -> tuple[Any, ...]:
    refuse_unless(one[-1] is None and other[-1] is None and one[:-2] == other[:-2], "distances in many dimensions")
    return one[:-2]


@rule_for(aten._cdist_backward.default)
def _distances_backward(writer: Writer, node: fx.Node) -> None:
    """Distances that do not count have no gradient, whatever lies there."""
    writer.same(node)
    grad, one, other, order, distances = args_of(node)
    own = dims_of(writer, one)
    expected = (*_batch(own, dims_of(writer, other)), own[-2], dims_of(writer, other)[-2])
    refuse_unless(dims_of(writer, grad) == dims_of(writer, distances) == expected, "a gradient of another size")
    given = [writer.kept(node_of(value), fill) for value, fill in ((grad, 0), (one, 0), (other, 0), (distances, 1))]
    writer.put(node, writer.call(node.target, *given[:3], order, given[3], dims=own), own)
