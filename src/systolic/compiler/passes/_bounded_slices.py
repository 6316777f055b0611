"""Parts of bounded arrays: slices, single elements, the other way round, and their gradients; see `_bounded_sizes.py`."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, Place, Size
from ._bounded_table import args_of, dim_of, dims_of, node_of, place_of, refuse_parts, refuse_unless, rule_for, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten


@rule_for(aten.slice.Tensor, parted=True)
def _slice(writer: Writer, node: fx.Node) -> None:
    own, value = dims_of(writer, args_of(node)[0]), value_of(args_of(node)[0])
    along = dim_of(node, len(own))
    size = own[along]
    if size is None and all(len(set(writer.numbers_at(node, at, 0))) == 1 for at in (2, 3)):
        writer.same(node)
        writer.put(node, writer.call(node.target, *writer.arguments(node), dims=own), own)
        return
    refuse_parts(size)
    writer.same(node, 0, 1, 4)
    refuse_unless(len(args_of(node)) < 5 or args_of(node)[4] == 1, "every other one of many")
    if size is None:
        _part_of_whole(writer, node, own, along)
        return
    begin, end = (_place(writer, node, size, at, default) for at, default in ((2, 0), (3, sys.maxsize)))
    length, of_length = writer.between(begin, end, value)
    dims = (*own[:along], of_length, *own[along + 1 :])
    source = writer.nodes[node_of(args_of(node)[0])]
    if begin.base is None:
        written = writer.call(aten.slice.Tensor, source, along, begin.offset, begin.offset + length, dims=dims)
    else:
        places = _moved_by(writer, writer.places(length, value), aten.add, writer.at(begin), size.bound)
        written = writer.call(aten.index_select.default, source, along, places, dims=dims)
    writer.put(node, written, dims)


def _part_of_whole(writer: Writer, node: fx.Node, own: Dims, along: int) -> None:
    """Places that are sizes, in a dimension that always has the same size."""
    source, value = node_of(args_of(node)[0]), value_of(args_of(node)[0])
    whole = value.shape[along]
    first, _, length, of_length = _ends(writer, node, (2, 3), whole)
    dims = (*own[:along], of_length, *own[along + 1 :])
    places = _moved_by(writer, writer.places(length, value), aten.add, first, whole)
    writer.put(node, writer.call(aten.index_select.default, writer.nodes[source], along, places, dims=dims), dims)


def _ends(
    writer: Writer, node: fx.Node, at: tuple[int, int], whole: int
) -> tuple[fx.Node | int, fx.Node | int, int, Size | None]:
    """Beginning, end and length of a slice of a dimension that always has the same size."""
    begins, ends = writer.numbers_at(node, at[0]), writer.numbers_at(node, at[1], whole)
    ends = (whole,) * len(ends) if set(ends) == {sys.maxsize} else ends
    (begin, of_begin), (end, of_end) = writer.length(begins), writer.length(ends)
    length, of_length = writer.length(tuple(end - begin for begin, end in zip(begins, ends, strict=True)))
    if of_end is not None:
        writer.test([(of_end, 1)], "le", whole)
    first, behind = (n if of is None else writer.elements(of) for n, of in ((begin, of_begin), (end, of_end)))
    return first, behind, length, of_length


def _place(writer: Writer, node: fx.Node, size: Size, at: int, default: int) -> Place:
    numbers = writer.numbers_at(node, at, default)
    return Place(size, 0) if set(numbers) == {sys.maxsize} else writer.place_in(size, numbers)


def _moved_by(writer: Writer, places: fx.Node, op: Any, by: fx.Node | int, bound: int) -> fx.Node:
    """Places moved by a number, up or down, none of which is outside of so many."""
    like = places.meta["val"]
    kind = op.Tensor if isinstance(by, fx.Node) else op.Scalar
    moved = writer.call(kind, places, by, dims=(None,), val=like)
    return writer.call(aten.clamp.default, moved, 0, bound - 1, dims=(None,), val=like)


@rule_for(aten.slice_backward.default, parted=True)
def _slice_backward(writer: Writer, node: fx.Node) -> None:
    """Each place takes the gradient that lies as far behind the slice's beginning, or none."""
    dims, grad = _of_source(writer, node), node_of(args_of(node)[0])
    along = place_of(args_of(node)[2], len(dims))
    size = dims[along]
    refuse_parts(size)
    writer.same(node, 2, 5)
    if size is None and all(len(set(writer.numbers_at(node, at))) == 1 for at in (3, 4)):
        refuse_unless(writer.dims[grad] == dims, "a part of many")
        _with_sizes(writer, node, dims)
        return
    refuse_unless(args_of(node)[5] == 1, "every other one of many")
    if size is None:
        whole = writer.sizes_at(node, 1)[along][0]
        first, behind, length, of_length = _ends(writer, node, (3, 4), whole)
        _spread_in(writer, node, first, behind, length, (*dims[:along], of_length, *dims[along + 1 :]))
        return
    begin, end = (_place(writer, node, size, at, default) for at, default in ((3, 0), (4, sys.maxsize)))
    length, of_length = writer.between(begin, end, value_of(grad))
    first, behind = writer.at(begin), writer.at(end)
    _spread_in(writer, node, first, behind, length, (*dims[:along], of_length, *dims[along + 1 :]))


def _spread_in(writer: Writer, node: fx.Node, first: fx.Node | int, behind: fx.Node | int, length: int, of_grad: Dims) -> None:
    """The gradient between two places of what was sliced, and zeros elsewhere."""
    dims, grad = _of_source(writer, node), node_of(args_of(node)[0])
    along = place_of(args_of(node)[2], len(dims))
    refuse_unless(writer.dims[grad] == of_grad and length > 0, "a gradient of another size")
    places = writer.places(writer.sizes_at(node, 1)[along][0], value_of(grad))
    sources = _moved_by(writer, places, aten.sub, first, length)
    spread = writer.call(aten.index_select.default, writer.nodes[grad], along, sources, dims=dims)
    before = _compared(writer, aten.lt, places, first)
    after = _compared(writer, aten.ge, places, behind)
    outside = writer.call(aten.logical_or.default, before, after, dims=(None,), val=before.meta["val"])
    writer.put(node, _zero_at(writer, spread, outside, dims, along), dims)


def _of_source(writer: Writer, node: fx.Node) -> Dims:
    return tuple(size for _, size in writer.sizes_at(node, 1))


def _with_sizes(writer: Writer, node: fx.Node, dims: Dims) -> None:
    """The same op, with the sizes of the new graph."""
    grad, _, *rest = writer.arguments(node)
    sizes = [n for n, _ in writer.sizes_at(node, 1)]
    writer.put(node, writer.call(node.target, grad, sizes, *rest, dims=dims), dims)


def _compared(writer: Writer, op: Any, places: fx.Node, with_what: fx.Node | int) -> fx.Node:
    like = places.meta["val"]
    kind = op.Tensor if isinstance(with_what, fx.Node) else op.Scalar
    return writer.call(kind, places, with_what, dims=(None,), val=like.new_empty(like.shape, dtype=torch.bool))


def _zero_at(writer: Writer, written: fx.Node, flags: fx.Node, dims: Dims, along: int) -> fx.Node:
    """Zeros where flags along one dimension say so."""
    like = flags.meta["val"]
    shape = [like.shape[0] if place == along else 1 for place in range(len(dims))]
    spread = writer.call(aten.view.default, flags, shape, dims=(None,) * len(dims), val=like.new_empty(shape))
    return writer.call(aten.masked_fill.Scalar, written, spread, 0, dims=dims)


@rule_for(aten.select.int, parted=True)
def _select(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source, own = writer.nodes[node_of(args_of(node)[0])], dims_of(writer, args_of(node)[0])
    along = place_of(args_of(node)[1], len(own))
    size, dims = own[along], (*own[:along], *own[along + 1 :])
    refuse_parts(size)
    if size is not None and (index := _element(writer, node, size, 2)).base is not None:
        value = value_of(args_of(node)[0])
        places = _moved_by(writer, writer.places(1, value), aten.add, writer.at(index), size.bound)
        kept, like = (*own[:along], None, *own[along + 1 :]), value.narrow(along, 0, 1)
        alone = writer.call(aten.index_select.default, source, along, places, dims=kept, val=like)
        writer.put(node, writer.call(aten.squeeze.dim, alone, along, dims=dims), dims)
        return
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


def _element(writer: Writer, node: fx.Node, size: Size, at: int) -> Place:
    """The place of one element, which is there for all batches of this graph."""
    index = args_of(node)[at]
    refuse_unless(isinstance(index, int), "a place that is a number of the program")
    writer.require(size, index + 1 if index >= 0 else -index)
    return Place(None, index) if index >= 0 else Place(size, index)


@rule_for(aten.select_backward.default, parted=True)
def _select_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 2, 3)
    dims, grad = _of_source(writer, node), node_of(args_of(node)[0])
    along = place_of(args_of(node)[2], len(dims))
    refuse_unless(writer.dims[grad] == (*dims[:along], *dims[along + 1 :]), "a gradient of another size")
    size = dims[along]
    refuse_parts(size)
    if size is None or (index := _element(writer, node, size, 3)).base is None:
        _with_sizes(writer, node, dims)
        return
    value, alone = value_of(grad), (*dims[:along], None, *dims[along + 1 :])
    sizes = [n for n, _ in writer.sizes_at(node, 1)]
    unsqueezed = writer.call(aten.unsqueeze.default, writer.nodes[grad], along, dims=alone, val=value.unsqueeze(along))
    spread = writer.call(aten.expand.default, unsqueezed, sizes, dims=dims)
    elsewhere = _compared(writer, aten.ne, writer.places(size.bound, value), writer.at(index))
    writer.put(node, _zero_at(writer, spread, elsewhere, dims, along), dims)


@rule_for(aten.select_scatter.default, parted=True)
def _select_scatter(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 2, 3)
    target, source = (node_of(one) for one in args_of(node)[:2])
    dims = writer.dims[target]
    along = place_of(args_of(node)[2], len(dims))
    refuse_unless(writer.dims[source] == (*dims[:along], *dims[along + 1 :]), "values of another size")
    size = dims[along]
    refuse_parts(size)
    refuse_unless(size is None or _element(writer, node, size, 3).base is None, "a place from the end of many")
    written = writer.call(node.target, writer.nodes[target], writer.nodes[source], *args_of(node)[2:], dims=dims)
    writer.put(node, written, dims)


@rule_for(aten.flip.default)
def _flip(writer: Writer, node: fx.Node) -> None:
    """The last one that counts comes first."""
    writer.same(node)
    source, value = node_of(args_of(node)[0]), value_of(args_of(node)[0])
    own, given = writer.dims[source], args_of(node)[1]
    assert isinstance(given, list | tuple), "dimensions"
    listed = [place_of(one, len(own)) for one in given]
    written = writer.nodes[source]
    for along in listed:
        size = own[along]
        if size is None:
            continue
        places = writer.places(size.bound, value)
        last = writer.at(Place(size, -1))
        assert isinstance(last, fx.Node), "behind what counts"
        back = writer.call(aten.sub.Tensor, last, places, dims=(None,), val=places.meta["val"])
        back = writer.call(aten.clamp.default, back, 0, size.bound - 1, dims=(None,), val=places.meta["val"])
        written = writer.call(aten.index_select.default, written, along, back, dims=own)
    others = [along for along in listed if own[along] is None]
    writer.put(node, writer.call(aten.flip.default, written, others, dims=own) if others else written, own)


@rule_for(aten.roll.default)
def _roll(writer: Writer, node: fx.Node) -> None:
    """The last ones that count come first."""
    writer.same(node)
    source, value = node_of(args_of(node)[0]), value_of(args_of(node)[0])
    own, shifts = writer.dims[source], args_of(node)[1]
    listed = args_of(node)[2] if len(args_of(node)) > 2 else []
    assert isinstance(listed, list | tuple), "dimensions"
    assert isinstance(shifts, list | tuple), "shifts"
    refuse_unless(bool(listed) and all(isinstance(shift, int) for shift in shifts), "what is rolled as a whole")
    written = writer.nodes[source]
    for dim, shift in zip(listed, shifts, strict=True):
        along = place_of(dim, len(own))
        size = own[along]
        if size is None:
            written = writer.call(aten.roll.default, written, [shift], [along], dims=own)
            continue
        places = writer.places(size.bound, value)
        back = writer.call(aten.sub.Scalar, places, shift, dims=(None,), val=places.meta["val"])
        back = writer.call(aten.remainder.Tensor, back, writer.elements(size), dims=(None,), val=places.meta["val"])
        written = writer.call(aten.index_select.default, written, along, back, dims=own)
    writer.put(node, written, own)
