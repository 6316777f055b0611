"""Largest elements, sorting and sums up to each place of bounded arrays; see `_bounded_sizes.py`.

What does not count is made the last in order. Sorting keeps the order of equals, so it stays behind what counts and is equal.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Size
from ._bounded_table import args_of, dims_of, node_of, op_of, place_of, reduced, refuse_parts, refuse_unless, rule_for, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten

_FIRST_IS_LARGEST = (aten.max.dim, aten.argmax.default, aten.logsumexp.default)
_FIRST_IS_SMALLEST = (aten.min.dim, aten.argmin.default)
_PAIRS = (aten.max.dim, aten.min.dim, aten.topk.default, aten.sort.default, aten.sort.stable)
_SORTING = (aten.sort.default, aten.sort.stable)
_ONE_DIMENSION = (aten.topk.default, *_SORTING, aten.cumsum.default)
"""Whose dimension is the last one where none is named."""


@rule_for(*_FIRST_IS_LARGEST, *_FIRST_IS_SMALLEST, aten.topk.default, *_SORTING, aten.cumsum.default, parted=True)
def _along(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    options, source = writer.options(node), node_of(args_of(node)[0])
    own, gone = writer.dims[source], _dims_along(writer, node)
    kept = writer.nodes[source]
    sized = [place for place in gone if own[place] is not None]
    for place in sized:
        refuse_parts(own[place])  # places are numbered, and those that do not count come last
    # a sum up to a place has none of what comes behind it
    if sized and node.target is not aten.cumsum.default:
        kept = writer.kept(source, _last(node, value_of(source).dtype), sized)
    arguments = (kept, *writer.arguments(node)[1:])
    if node.target in _SORTING or node.target is aten.cumsum.default:
        dims = own
    elif node.target is aten.topk.default:
        for place in sized:
            _require(writer, own[place], args_of(node)[1])
        dims = reduced(own, gone, True)
    else:
        for place in sized if node.target is not aten.logsumexp.default else ():
            _require(writer, own[place], 1)
        keeps = len(args_of(node)) > 2 and bool(args_of(node)[2])
        dims = reduced(own, gone, keeps)
    result: Any = [dims, dims] if node.target in _PAIRS else dims
    writer.put(node, writer.call(node.target, *arguments, dims=result, **options), result)


def _require(writer: Writer, size: Size | None, fewest: Any) -> None:
    refuse_unless(isinstance(fewest, int), "as many as the program says")
    if size is not None:
        writer.require(size, fewest)


def _dims_along(writer: Writer, node: fx.Node) -> list[int]:
    """The dimensions in which elements are compared or added up."""
    own = dims_of(writer, args_of(node)[0])
    given = _argument(node, 2 if node.target is aten.topk.default else 1, "dim")
    if given is None and node.target in _ONE_DIMENSION:
        given = -1
    if given is None:
        # the number of an element among all of them does not depend on how many there are of the first dimension
        refuse_unless(all(size is None for size in own[1:]), "the largest of many")
        return list(range(len(own)))
    return [place_of(one, len(own)) for one in (given if isinstance(given, list | tuple) else [given])]


def _argument(node: fx.Node, at: int, name: str) -> Any:
    if node.target is aten.sort.stable:
        return node.kwargs.get(name)
    return args_of(node)[at] if len(args_of(node)) > at else node.kwargs.get(name)


def _last(node: fx.Node, kind: torch.dtype) -> float:
    """The element that comes last in an op's order; of floating-point numbers NaN is the largest."""
    if node.target is aten.topk.default:
        descending = _argument(node, 3, "largest") is not False
    elif node.target in _SORTING:
        descending = bool(_argument(node, 2, "descending"))
    else:
        descending = op_of(node) in _FIRST_IS_LARGEST
    if kind is torch.bool:
        return 0 if descending else 1
    if not kind.is_floating_point:
        return torch.iinfo(kind).min if descending else torch.iinfo(kind).max
    if descending:
        return -math.inf
    return math.inf if op_of(node) in _FIRST_IS_SMALLEST else math.nan


def place_among(writer: Writer, node: fx.Node) -> Size | None:
    """The size along which an index names elements that an order put somewhere; None for any other index.

    Of what counts such an index names what counts; of what does not, it names places that are not outside of the array.
    """
    while node.target in (aten.unsqueeze.default, aten.squeeze.dim, aten.expand.default, aten.clone.default):
        node = node_of(args_of(node)[0])
    if node.target is operator.getitem and args_of(node)[1] == 1:
        node = node_of(args_of(node)[0])
        if node.target not in _PAIRS:
            return None
    elif node.target not in (aten.argmax.default, aten.argmin.default):
        return None
    along = _dims_along(writer, node)
    return dims_of(writer, args_of(node)[0])[along[0]] if len(along) == 1 else None


def is_order_along(writer: Writer, node: fx.Node, along: int) -> bool:
    """Whether an index is an order of all that there is along this dimension: no place is in it twice."""
    if node.target is not operator.getitem or args_of(node)[1] != 1:
        return False
    source = node_of(args_of(node)[0])
    return source.target in _SORTING and _dims_along(writer, source) == [along]
