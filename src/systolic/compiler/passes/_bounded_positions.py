"""Positions that a mask selects, and what is read and written there; see `_bounded_sizes.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ._bounded_sizes import Dims, Writer
from ._bounded_table import args_of, dims_of, node_of, place_of, refuse_unless, rule_for, together, value_of

aten = torch.ops.aten


@rule_for(aten.nonzero_static.default)
def _positions(writer: Writer, node: fx.Node) -> None:
    """Behind the positions that the mask selects comes the first one there is, so that all are inside of the tensor."""
    size = writer.size(node_of(args_of(node)[0]))
    refuse_unless(size is not None, "positions without a mask")
    assert size is not None
    dims: Dims = (size, None)
    written = writer.call(node.target, writer.nodes[node_of(args_of(node)[0])], size=size.bound, fill_value=0, dims=dims)
    writer.put(node, written, dims)


def _indexed(writer: Writer, node: fx.Node) -> tuple[list[fx.Node | None], Dims, Dims]:
    """The indices, none of them outside for what does not count; their dimensions; those of the result."""
    given = args_of(node)[1]
    assert isinstance(given, list | tuple), "indices"
    own = dims_of(writer, args_of(node)[0])
    places = [place for place, one in enumerate(given) if one is not None]
    refuse_unless(bool(places) and places == list(range(places[0], places[-1] + 1)), "indices apart from each other")
    used = [node_of(given[place]) for place in places]
    refuse_unless(all(value_of(one).dtype not in (torch.bool, torch.uint8) for one in used), "a mask")
    # an index into a dimension of which a part does not count might be outside without anybody noticing
    refuse_unless(all(own[place] is None for place in places), "one of many")
    of_indices = together((value_of(one).shape, writer.dims[one]) for one in used)
    indices: list[fx.Node | None] = [None if one is None else writer.kept(node_of(one), 0) for one in given]
    return indices, of_indices, (*own[: places[0]], *of_indices, *own[places[-1] + 1 :])


@rule_for(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(writer: Writer, node: fx.Node) -> None:
    indices, _, dims = _indexed(writer, node)
    writer.put(node, writer.call(node.target, writer.nodes[node_of(args_of(node)[0])], indices, dims=dims), dims)


@rule_for(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 3)
    given = args_of(node)[1]
    assert isinstance(given, list | tuple), "indices"
    accumulates = len(args_of(node)) > 3 and bool(args_of(node)[3])
    if len(given) == 1 and given[0] is not None and value_of(given[0]).dtype is torch.bool:
        _mask_put(writer, node, given[0], accumulates)
        return
    refuse_unless(accumulates, "elements that are written one over the other")
    target, values = node_of(args_of(node)[0]), node_of(args_of(node)[2])
    indices, _, shape = _indexed(writer, node)
    dims = writer.dims[target]
    refuse_unless(all(size is None for size in dims), "a target of many")
    refuse_unless(writer.dims[values] == shape and value_of(values).dim() == len(shape), "values for several places")
    written = writer.call(node.target, writer.nodes[target], indices, writer.kept(values, 0), True, dims=dims)
    writer.put(node, written, dims)


def _mask_put(writer: Writer, node: fx.Node, mask: Any, accumulates: bool) -> None:
    """Values at the elements of a mask, in their order: those that do not count come last, and are not taken."""
    target, values, size = node_of(args_of(node)[0]), node_of(args_of(node)[2]), writer.size(node_of(mask))
    dims, shape = writer.dims[target], value_of(target).shape
    trailing = len(shape) - value_of(mask).dim()
    refuse_unless(size is not None and all(one is None for one in (*dims, *writer.dims[node_of(mask)])), "another mask")
    refuse_unless(writer.dims[values] == (size, *(None,) * trailing), "values of another size")
    refuse_unless(value_of(values).shape[1:] == shape[len(shape) - trailing :], "values for several places")
    refuse_unless(value_of(values).dtype == value_of(target).dtype, "values of another type")
    flat = writer.nodes[node_of(mask)]
    flags = value_of(mask)
    spread = [*flags.shape, *(1,) * trailing]
    view = writer.call(aten.view.default, flat, spread, dims=(None,) * len(shape), val=flags.new_empty(spread))
    whole = writer.call(aten.expand.default, view, list(shape), dims=dims, val=flags.new_empty(shape))
    base = writer.nodes[target]
    under = writer.call(aten.zeros_like.default, base, dims=dims) if accumulates else base
    written = writer.call(aten.masked_scatter.default, under, whole, writer.nodes[values], dims=dims)
    writer.put(node, writer.call(aten.add.Tensor, base, written, dims=dims) if accumulates else written, dims)


@rule_for(aten.masked_scatter.default)
def _masked_scatter(writer: Writer, node: fx.Node) -> None:
    """The elements of a mask in their order, of which those that do not count come last, and are not taken."""
    target, mask, source = (node_of(one) for one in args_of(node))
    size = writer.size(mask)
    plain = all(one is None for one in (*writer.dims[target], *writer.dims[mask]))
    refuse_unless(size is not None and plain and writer.dims[source] == (size,), "another mask")
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=writer.dims[target]), writer.dims[target])


@rule_for(aten.gather.default)
def _gather(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    source, index = node_of(args_of(node)[0]), node_of(args_of(node)[2])
    dims = writer.dims[index]
    along = place_of(args_of(node)[1], len(dims))
    refuse_unless(_fits_along(writer.dims[source], dims, along), "one of many")
    written = writer.call(node.target, writer.nodes[source], args_of(node)[1], writer.kept(index, 0), dims=dims)
    writer.put(node, written, dims)


@rule_for(aten.scatter_add.default)
def _scatter_add(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    target, index, source = (node_of(one) for one in (args_of(node)[0], args_of(node)[2], args_of(node)[3]))
    dims = writer.dims[target]
    along = place_of(args_of(node)[1], len(dims))
    refuse_unless(writer.dims[index] == writer.dims[source] and _fits_along(dims, writer.dims[index], along), "sizes")
    written = writer.call(
        node.target, writer.nodes[target], args_of(node)[1], writer.kept(index, 0), writer.kept(source, 0), dims=dims
    )
    writer.put(node, written, dims)


def _fits_along(dims: Dims, of_index: Dims, along: int) -> bool:
    """Whether an index has a tensor's dimensions but for one, which always has the same size in the tensor."""
    return len(dims) == len(of_index) and dims[along] is None and all(
        one is other for place, (one, other) in enumerate(zip(dims, of_index, strict=True)) if place != along
    )  # fmt: skip


@rule_for(aten.embedding.default)
def _embedding(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    table, index = node_of(args_of(node)[0]), node_of(args_of(node)[1])
    refuse_unless(all(size is None for size in writer.dims[table]), "a table of many")
    dims = (*writer.dims[index], None)
    written = writer.call(node.target, writer.nodes[table], writer.kept(index, 0), *args_of(node)[2:], dims=dims)
    writer.put(node, written, dims)


@rule_for(aten.embedding_dense_backward.default)
def _embedding_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    grad, index = node_of(args_of(node)[0]), node_of(args_of(node)[1])
    refuse_unless(not (len(args_of(node)) > 4 and args_of(node)[4]), "gradients divided by frequency")
    refuse_unless(writer.dims[grad] == (*writer.dims[index], None), "a gradient of another size")
    dims: Dims = (None, None)
    written = writer.call(node.target, writer.kept(grad, 0), writer.kept(index, 0), *args_of(node)[2:], dims=dims)
    writer.put(node, written, dims)
