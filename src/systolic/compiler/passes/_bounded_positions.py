"""Positions that a mask selects, and what is read and written there; see `_bounded_sizes.py`."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ..kernels import counted, within
from ._bounded_dims import Dims, Size
from ._bounded_order import is_order_along, place_among
from ._bounded_table import args_of, dims_of, node_of, place_of, refuse_parts, refuse_unless, rule_for, together, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten


@rule_for(aten.nonzero_static.default, parted=True)
def _positions(writer: Writer, node: fx.Node) -> None:
    """Behind the positions that the mask selects comes the first one there is, so that all are inside of the tensor."""
    mask = node_of(args_of(node)[0])
    parted = any(size is not None and size.part for size in writer.dims[mask])
    refuse_unless(not parted or _is_index(node), "numbers of positions in a size that is joined with one before it")
    selected, size = writer.selected(mask), writer.size(mask)
    number = node.kwargs["size"] if size is None else size.bound
    writer.put(node, writer.call(node.target, selected, size=number, fill_value=0, dims=(size, None)), (size, None))


PARTS_OF_POSITIONS = (aten.unbind.int, aten.select.int, aten.squeeze.dim, operator.getitem)
"""Ops that take the positions of one dimension out of those of a mask."""
_INDEXED = (aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default)


def _is_index(node: fx.Node) -> bool:
    """Whether positions are nothing but indices of tensors that are as large as their mask."""
    for user in node.users:
        given: Any = user.args
        beside = [given[0], *given[2:]]
        if user.target in PARTS_OF_POSITIONS:
            if not _is_index(user):
                return False
        elif user.target not in _INDEXED or node in beside:
            return False
    return True


@rule_for(aten.repeat_interleave.Tensor)
def _repeated(writer: Writer, node: fx.Node) -> None:
    """Behind each number as often as it is repeated comes the last one, as often as there is room."""
    bound, size = writer.length(writer.numbers_at(node, "output_size"))
    repeats = writer.kept(node_of(args_of(node)[0]), 0)
    writer.put(node, writer.call(node.target, repeats, dims=(size,), output_size=bound), (size,))


def is_position(writer: Writer, node: fx.Node, size: Size) -> bool:
    """Whether an index is in a dimension of this size: a position that a mask selects, a place in an order, or each in turn."""
    if place_among(writer, node) is size:
        return True
    if node.target is aten.arange.default:
        return writer.dims[node] == (size,)
    if node.target is aten.repeat_interleave.Tensor:
        return dims_of(writer, args_of(node)[0]) == (size,)
    place: Any = 0
    along: Any = 1
    if node.target is operator.getitem:
        listed, place = node_of(args_of(node)[0]), args_of(node)[1]
        if listed.target is not aten.unbind.int:
            return False
        node, along = node_of(args_of(listed)[0]), args_of(listed)[1] if len(args_of(listed)) > 1 else 0
    elif node.target is aten.select.int:
        given, along, place = args_of(node)
        node = node_of(given)
    elif node.target is aten.squeeze.dim:
        node = node_of(args_of(node)[0])
    if along not in (1, -1):
        return False
    return node.target is aten.nonzero_static.default and dims_of(writer, args_of(node)[0])[place] is size


def _indexed(writer: Writer, node: fx.Node) -> tuple[list[fx.Node | None], Dims, Dims]:
    """The indices, none of them outside for what does not count; their dimensions; those of the result."""
    given = args_of(node)[1]
    assert isinstance(given, list | tuple), "indices"
    own = dims_of(writer, args_of(node)[0])
    places = [place for place, one in enumerate(given) if one is not None]
    refuse_unless(bool(places) and places == list(range(places[0], places[-1] + 1)), "indices apart from each other")
    used = [node_of(given[place]) for place in places]
    refuse_unless(all(value_of(one).dtype not in (torch.bool, torch.uint8) for one in used), "a mask")
    of_indices = together((value_of(one).shape, writer.dims[one]) for one in used)
    indices: list[fx.Node | None] = [None] * len(given)
    for place, one in zip(places, used, strict=True):
        indices[place] = _places_in(writer, one, own[place], from_end=True)
    return indices, of_indices, (*own[: places[0]], *of_indices, *own[places[-1] + 1 :])


def _places_in(writer: Writer, index: fx.Node, size: Size | None, *, from_end: bool = False) -> fx.Node:
    """Places in a dimension, none of them outside for what does not count.

    An index into a dimension of which a part does not count might be outside without anybody noticing, so that is checked.
    """
    kept = writer.kept(index, 0)
    if size is None or is_position(writer, index, size):
        return kept
    refuse_parts(size)
    if any(writer.dims[index]):
        writer.require(size, 1)  # where there is nothing, zero is outside, too
    low = -size.bound if from_end else 0
    return writer.call(
        counted, kept, writer.elements(size), low, size.bound, "index", dims=writer.dims[index], val=value_of(index)
    )


@rule_for(aten.index.Tensor, aten._unsafe_index.Tensor, parted=True)
def _index(writer: Writer, node: fx.Node) -> None:
    indices, _, dims = _indexed(writer, node)
    writer.put(node, writer.call(node.target, writer.nodes[node_of(args_of(node)[0])], indices, dims=dims), dims)


@rule_for(aten.index_put.default, aten._unsafe_index_put.default, parted=True)
def _index_put(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 3)
    given = args_of(node)[1]
    assert isinstance(given, list | tuple), "indices"
    accumulates = len(args_of(node)) > 3 and bool(args_of(node)[3])
    if len(given) == 1 and given[0] is not None and value_of(given[0]).dtype is torch.bool:
        _mask_put(writer, node, given[0], accumulates)
        return
    target, values = node_of(args_of(node)[0]), node_of(args_of(node)[2])
    indices, _, shape = _indexed(writer, node)
    dims, of_values = writer.dims[target], writer.dims[values]
    if accumulates:
        refuse_unless(of_values == shape and value_of(values).dim() == len(shape), "values for several places")
        written = writer.call(node.target, writer.nodes[target], indices, writer.kept(values, 0), True, dims=dims)
    else:
        # what does not count is written where the last one was, and is what was written there
        refuse_unless(of_values in (shape, (None,) * len(of_values)), "values of another size")
        indices = [None if one is None else writer.repeated(node_of(one)) for one in given]
        written = writer.call(node.target, writer.nodes[target], indices, writer.repeated(values), False, dims=dims)
    writer.put(node, written, dims)


def _mask_put(writer: Writer, node: fx.Node, mask: Any, accumulates: bool) -> None:
    """Values at the elements of a mask, in their order: those that do not count come last, and are not taken."""
    target, values, size = node_of(args_of(node)[0]), node_of(args_of(node)[2]), writer.size(node_of(mask))
    dims, shape, of_mask = writer.dims[target], value_of(target).shape, writer.dims[node_of(mask)]
    trailing = len(shape) - value_of(mask).dim()
    behind = dims[len(of_mask) :]
    for other in behind:
        refuse_parts(other)
    refuse_unless(dims[: len(of_mask)] == of_mask, "another mask")
    refuse_unless(value_of(values).dtype == value_of(target).dtype, "values of another type")
    selected, base = writer.selected(node_of(mask)), writer.nodes[target]
    flags, plain = value_of(selected), (None,) * len(shape)
    spread, whole_shape = [*flags.shape, *(1,) * trailing], list(value_of(base).shape)
    view = writer.call(aten.view.default, selected, spread, dims=plain, val=flags.new_empty(spread))
    whole = writer.call(aten.expand.default, view, whole_shape, dims=plain, val=flags.new_empty(whole_shape))
    under = writer.call(aten.zeros_like.default, base, dims=dims) if accumulates else base
    if value_of(values).dim() == 0:
        written = writer.call(aten.where.self, whole, writer.nodes[values], under, dims=dims)
    else:
        refuse_unless(writer.dims[values] == (size, *behind), "values of another size")
        refuse_unless(value_of(values).shape[1:] == shape[len(shape) - trailing :], "values for several places")
        written = writer.call(aten.masked_scatter.default, under, whole, writer.nodes[values], dims=dims)
    writer.put(node, writer.call(aten.add.Tensor, base, written, dims=dims) if accumulates else written, dims)


@rule_for(aten.masked_scatter.default, parted=True)
def _masked_scatter(writer: Writer, node: fx.Node) -> None:
    """The elements of a mask in their order, of which those that do not count come last, and are not taken."""
    target, mask, source = (node_of(one) for one in args_of(node))
    size = writer.size(mask)
    dims = writer.dims[target]
    refuse_unless(size is not None and writer.dims[mask] == dims and writer.dims[source] == (size,), "another mask")
    given = (writer.nodes[target], writer.selected(mask), writer.nodes[source])
    writer.put(node, writer.call(node.target, *given, dims=dims), dims)


@rule_for(aten.gather.default, parted=True)
def _gather(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    source, index = node_of(args_of(node)[0]), node_of(args_of(node)[2])
    dims = writer.dims[index]
    along = place_of(args_of(node)[1], len(dims))
    refuse_unless(_fits_along(writer.dims[source], dims, along), "one of many")
    places = _places_in(writer, index, writer.dims[source][along])
    writer.put(node, writer.call(node.target, writer.nodes[source], args_of(node)[1], places, dims=dims), dims)


def _scattered(writer: Writer, node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node, int]:
    """Target, index and source of an op that writes along a dimension which always has the same size; and that dimension."""
    writer.same(node, 1)
    target, index, source = (node_of(one) for one in (args_of(node)[0], args_of(node)[2], args_of(node)[3]))
    dims = writer.dims[target]
    along = place_of(args_of(node)[1], len(dims))
    refuse_unless(writer.dims[index] == writer.dims[source], "sizes")
    return target, index, source, along


@rule_for(aten.scatter_add.default, parted=True)
def _scatter_add(writer: Writer, node: fx.Node) -> None:
    target, index, source, along = _scattered(writer, node)
    dims = writer.dims[target]
    refuse_unless(_fits_along(dims, writer.dims[index], along), "sizes")
    given = (writer.nodes[target], along, _places_in(writer, index, dims[along]), writer.kept(source, 0))
    writer.put(node, writer.call(node.target, *given, dims=dims), dims)


def _reaches(writer: Writer, tensor: fx.Node, index: fx.Node, along: int) -> bool:
    """Whether an index along a dimension of a tensor's names what is there and counts, and has its other dimensions."""
    dims = writer.dims[tensor]
    size = dims[along]
    return _fits_along(dims, writer.dims[index], along) and (size is None or is_position(writer, index, size))


@rule_for(aten.scatter.src, parted=True)
def _scatter(writer: Writer, node: fx.Node) -> None:
    """Elements that do not count are written where the last one went, which is the same twice.

    An order of all that counts, and of what does not, is written as it is: each element has a place of its own.
    """
    writer.same(node, 1)
    target, index, source = (node_of(one) for one in (args_of(node)[0], args_of(node)[2], args_of(node)[3]))
    dims = writer.dims[target]
    along = place_of(args_of(node)[1], len(dims))
    refuse_unless(writer.dims[index] == writer.dims[source] and _reaches(writer, target, index, along), "sizes")
    ordered = dims[along] is not None and writer.dims[index][along] is dims[along]
    refuse_unless(not ordered or is_order_along(writer, index, along), "one of many")
    given = (writer.nodes[index], writer.nodes[source]) if ordered else (writer.repeated(index), writer.repeated(source))
    writer.put(node, writer.call(node.target, writer.nodes[target], along, *given, dims=dims), dims)


def _fits_along(dims: Dims, of_index: Dims, along: int) -> bool:
    """Whether an index has a tensor's dimensions but for one."""
    return len(dims) == len(of_index) and all(
        one is other for place, (one, other) in enumerate(zip(dims, of_index, strict=True)) if place != along
    )  # fmt: skip


_REPEATABLE = ("amax", "amin")
_NEUTRAL = {"sum": 0.0, "prod": 1.0}


@rule_for(aten.scatter_reduce.two, parted=True)
def _scatter_reduce(writer: Writer, node: fx.Node) -> None:
    """Elements that do not count go where the last one went, which is the same twice, or adds nothing there."""
    writer.same(node, 4)
    target, index, source, along = _scattered(writer, node)
    reduce, dims = args_of(node)[4], writer.dims[target]
    refuse_unless(_reaches(writer, target, index, along), "sizes")
    refuse_unless(reduce in _REPEATABLE or reduce in _NEUTRAL, "a mean of many")
    given = writer.repeated(source) if reduce in _REPEATABLE else writer.kept(source, _NEUTRAL[reduce], [along])
    arguments = (writer.nodes[target], along, writer.repeated(index), given, reduce)
    writer.put(node, writer.call(node.target, *arguments, dims=dims, **writer.options(node)), dims)


@rule_for(aten.index_select.default, parted=True)
def _index_select(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    source, index = node_of(args_of(node)[0]), node_of(args_of(node)[2])
    own = writer.dims[source]
    along = place_of(args_of(node)[1], len(own))
    refuse_unless(len(writer.dims[index]) == 1, "one of many")
    dims = (*own[:along], *writer.dims[index], *own[along + 1 :])
    places = _places_in(writer, index, own[along])
    writer.put(node, writer.call(node.target, writer.nodes[source], args_of(node)[1], places, dims=dims), dims)


@rule_for(aten.index_add.default, parted=True)
def _index_add(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    target, index, source = (node_of(one) for one in (args_of(node)[0], args_of(node)[2], args_of(node)[3]))
    dims = writer.dims[target]
    along = place_of(args_of(node)[1], len(dims))
    expected = (*dims[:along], *writer.dims[index], *dims[along + 1 :])
    refuse_unless(writer.dims[source] == expected, "sizes")
    kept = writer.kept(source, 0, [along])
    given = (writer.nodes[target], args_of(node)[1], _places_in(writer, index, dims[along]), kept)
    writer.put(node, writer.call(node.target, *given, dims=dims, **writer.options(node)), dims)


@rule_for(aten.embedding.default, parted=True)
def _embedding(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    table, index = node_of(args_of(node)[0]), node_of(args_of(node)[1])
    refuse_unless(all(size is None for size in writer.dims[table]), "a table of many")
    dims = (*writer.dims[index], None)
    written = writer.call(node.target, writer.nodes[table], writer.kept(index, 0), *args_of(node)[2:], dims=dims)
    writer.put(node, written, dims)


@rule_for(aten.embedding_dense_backward.default, parted=True)
def _embedding_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    grad, index = node_of(args_of(node)[0]), node_of(args_of(node)[1])
    refuse_unless(not (len(args_of(node)) > 4 and args_of(node)[4]), "gradients divided by frequency")
    refuse_unless(writer.dims[grad] == (*writer.dims[index], None), "a gradient of another size")
    dims: Dims = (None, None)
    written = writer.call(node.target, writer.kept(grad, 0), writer.kept(index, 0), *args_of(node)[2:], dims=dims)
    writer.put(node, written, dims)


@rule_for(within, parted=True)
def _within(writer: Writer, node: fx.Node) -> None:
    """Elements that do not count are inside."""
    writer.same(node, 1, 3, 4)
    index, low = node_of(args_of(node)[0]), args_of(node)[1]
    dims = writer.dims[index]
    high, size = writer.length(writer.numbers_at(node, 2))
    if size is None:
        kept = writer.kept(index, low)
        writer.put(node, writer.call(node.target, kept, low, high, *args_of(node)[3:], dims=dims), dims)
        return
    refuse_unless(low == 0, "places from the end")
    writer.put(node, _places_in(writer, index, size), dims)
