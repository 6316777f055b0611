"""Sums, products and softmax of bounded arrays: what does not count is put out of them; see `_bounded_sizes.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims
from ._bounded_table import args_of, node_of, op_of, place_of, reduced, refuse_unless, rule_for, together, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten


_NEUTRAL: dict[Any, float] = {
    aten.sum.default: 0, aten.sum.dim_IntList: 0, aten.mean.default: 0, aten.mean.dim: 0, aten.prod.default: 1,
    aten.any.default: 0, aten.any.dim: 0, aten.all.default: 1, aten.all.dim: 1,
}  # fmt: skip
_LARGEST = (aten.max.default, aten.amax.default)
_SMALLEST = (aten.min.default, aten.amin.default)


def _neutral(op: Any, kind: torch.dtype) -> float:
    """The element that changes no result of an op over others."""
    if op in _NEUTRAL:
        return _NEUTRAL[op]
    refuse_unless(kind is not torch.bool, "the largest of two")
    if kind.is_floating_point:
        return -math.inf if op in _LARGEST else math.inf
    return torch.iinfo(kind).min if op in _LARGEST else torch.iinfo(kind).max


@rule_for(*_NEUTRAL, *_LARGEST, *_SMALLEST, parted=True)
def _reduced(writer: Writer, node: fx.Node) -> None:
    """Reduced over what counts."""
    writer.same(node)
    options = writer.options(node)
    source = node_of(args_of(node)[0])
    own, shape = writer.dims[source], value_of(source).shape
    given = args_of(node)[1] if len(args_of(node)) > 1 else None
    listed = given if isinstance(given, list | tuple) else [given]
    gone = {place_of(one, len(own)) for one in listed} if given is not None and given != [] else set(range(len(own)))
    keeps = bool(args_of(node)[2]) if len(args_of(node)) > 2 else False
    dims = reduced(own, gone, keeps)
    counted = [own[p] for p in sorted(gone) if own[p] is not None]
    for size in counted if node.target in (*_LARGEST, *_SMALLEST) else ():
        assert size is not None
        writer.require(size, 1)  # of nothing there is no largest
    kept = writer.kept(source, _neutral(op_of(node), value_of(source).dtype), sorted(gone))
    if node.target not in (aten.mean.default, aten.mean.dim) or not counted:
        writer.put(node, writer.call(node.target, kept, *writer.arguments(node)[1:], dims=dims, **options), dims)
        return
    refuse_unless(not options.get("dtype"), "a mean of another type")
    total = writer.call(aten.sum.dim_IntList, kept, sorted(gone), keeps, dims=dims)
    others = math.prod(shape[p] for p in gone if own[p] is None)
    for size in counted:
        assert size is not None
        total, others = writer.call(aten.div.Tensor, total, writer.elements(size, others), dims=dims), 1
    writer.put(node, total, dims)


@rule_for(aten.mm.default, aten.bmm.default, aten.addmm.default, parted=True)
def _product(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    left, right = (node_of(one) for one in args_of(node)[-2:])
    a, b = writer.dims[left], writer.dims[right]
    refuse_unless(a[-1] is b[-2] and a[:-2] == b[:-2], "products of different sizes")
    dims: Dims = (*a[:-2], a[-2], b[-1])
    factors = [writer.kept(left, 0, [len(a) - 1]), writer.kept(right, 0, [len(b) - 2])]
    if node.target is aten.addmm.default:
        bias = node_of(args_of(node)[0])
        refuse_unless(together([(value_of(bias).shape, writer.dims[bias]), (value_of(node).shape, dims)]) == dims, "a bias")
        factors.insert(0, writer.nodes[bias])
    writer.put(node, writer.call(node.target, *factors, dims=dims, **writer.options(node)), dims)


@rule_for(aten.mv.default, aten.dot.default, parted=True)
def _product_with_vector(writer: Writer, node: fx.Node) -> None:
    left, right = (node_of(one) for one in args_of(node))
    a, b = writer.dims[left], writer.dims[right]
    refuse_unless(a[-1] is b[0], "products of different sizes")
    factors = [writer.kept(left, 0, [len(a) - 1]), writer.kept(right, 0)]
    writer.put(node, writer.call(node.target, *factors, dims=a[:-1]), a[:-1])


@rule_for(aten._log_softmax.default, aten._softmax.default, parted=True)
def _softmax(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source = node_of(args_of(node)[0])
    dims = writer.dims[source]
    kept = writer.kept(source, -math.inf, [place_of(args_of(node)[1], len(dims))])
    writer.put(node, writer.call(node.target, kept, *args_of(node)[1:], dims=dims), dims)


@rule_for(aten._log_softmax_backward_data.default, aten._softmax_backward_data.default, parted=True)
def _softmax_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    grad, output = node_of(args_of(node)[0]), node_of(args_of(node)[1])
    dims = writer.dims[output]
    refuse_unless(writer.dims[grad] == dims, "a gradient of another size")
    along = [place_of(args_of(node)[2], len(dims))]
    written = writer.call(
        node.target, writer.kept(grad, 0, along), writer.kept(output, 0, along), *args_of(node)[2:], dims=dims
    )
    writer.put(node, written, dims)
