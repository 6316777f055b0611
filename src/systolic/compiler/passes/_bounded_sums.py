"""Sums, products, softmax and norms of bounded arrays: what does not count is put out of them; see `_bounded_sizes.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from ._bounded_table import args_of, dims_of, node_of, op_of, place_of, refuse_unless, rule_for, together, value_of
from ._bounded_writer import Dims, Writer

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


@rule_for(*_NEUTRAL, *_LARGEST, *_SMALLEST)
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
    dims = tuple(None if p in gone else one for p, one in enumerate(own) if keeps or p not in gone)
    counted = [own[p] for p in sorted(gone) if own[p] is not None]
    kept = writer.kept(source, _neutral(op_of(node), value_of(source).dtype), sorted(gone))
    if node.target not in (aten.mean.default, aten.mean.dim) or not counted:
        writer.put(node, writer.call(node.target, kept, *writer.arguments(node)[1:], dims=dims, **options), dims)
        return
    refuse_unless(not options.get("dtype") and len(counted) == 1, "a mean over two sizes")
    total = writer.call(aten.sum.dim_IntList, kept, sorted(gone), keeps, dims=dims)
    size = counted[0]
    assert size is not None
    number = writer.elements(size, math.prod(shape[p] for p in gone if own[p] is None))
    writer.put(node, writer.call(aten.div.Tensor, total, number, dims=dims), dims)


_ALONG = (
    aten.argmax.default, aten.argmin.default, aten.logsumexp.default,
    aten.max.dim, aten.min.dim, aten.topk.default, aten.sort.default, aten.cumsum.default,
)  # fmt: skip
_PAIR_ALONG = (aten.max.dim, aten.min.dim, aten.topk.default, aten.sort.default)
_KEEPING = (aten.topk.default, aten.sort.default, aten.cumsum.default)


@rule_for(aten.linalg_vector_norm.default)
def _norm(writer: Writer, node: fx.Node) -> None:
    """Of all that counts only where zeros add nothing to it: not for the order 0 and those below."""
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    order = args_of(node)[1] if len(args_of(node)) > 1 else 2
    given = args_of(node)[2] if len(args_of(node)) > 2 else None
    gone = set(range(len(own))) if given is None else {place_of(one, len(own)) for one in given}
    refuse_unless(isinstance(order, int | float) and order > 0, "a norm of this order")
    keeps = len(args_of(node)) > 3 and bool(args_of(node)[3])
    dims = tuple(None if p in gone else size for p, size in enumerate(own) if keeps or p not in gone)
    kept = writer.kept(node_of(args_of(node)[0]), 0, sorted(gone))
    writer.put(node, writer.call(node.target, kept, *writer.arguments(node)[1:], dims=dims, **writer.options(node)), dims)


@rule_for(*_ALONG)
def _along(writer: Writer, node: fx.Node) -> None:
    """Along dimensions whose size is always the same; of nothing PyTorch has no largest element."""
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    at = 2 if node.target is aten.topk.default else 1
    given = args_of(node)[at] if len(args_of(node)) > at else (-1 if node.target in _KEEPING else None)
    listed = given if isinstance(given, list | tuple) else [given]
    gone = {place_of(one, len(own)) for one in listed}
    refuse_unless(bool(gone) and all(own[place] is None for place in gone), "the largest of many")
    keeps = node.target in _KEEPING or (len(args_of(node)) > 2 and bool(args_of(node)[2]))
    dims = own if keeps else tuple(size for place, size in enumerate(own) if place not in gone)
    result = [dims, dims] if node.target in _PAIR_ALONG else dims
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=result, **writer.options(node)), result)


@rule_for(aten.mm.default, aten.bmm.default, aten.addmm.default)
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


@rule_for(aten._log_softmax.default, aten._softmax.default)
def _softmax(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source = node_of(args_of(node)[0])
    dims = writer.dims[source]
    kept = writer.kept(source, -math.inf, [place_of(args_of(node)[1], len(dims))])
    writer.put(node, writer.call(node.target, kept, *args_of(node)[1:], dims=dims), dims)


@rule_for(aten._log_softmax_backward_data.default, aten._softmax_backward_data.default)
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


@rule_for(aten.native_layer_norm.default)
def _layer_norm(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source, shape = node_of(args_of(node)[0]), args_of(node)[1]
    own = writer.dims[source]
    assert isinstance(shape, list | tuple), "a shape"
    outer = len(own) - len(shape)
    refuse_unless(all(size is None for size in own[outer:]), "a norm over many")
    dims = [own, (*own[:outer], *(None,) * len(shape)), (*own[:outer], *(None,) * len(shape))]
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.native_layer_norm_backward.default)
def _layer_norm_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    grad, source, shape, mean, scale, *_ = args_of(node)
    own = dims_of(writer, source)
    assert isinstance(shape, list | tuple), "a shape"
    refuse_unless(all(size is None for size in own[len(own) - len(shape) :]) and dims_of(writer, grad) == own, "sizes")
    kept = [writer.kept(node_of(one), 0) for one in (grad, source)]
    statistics = [writer.kept(node_of(one), 0) for one in (mean, scale)]
    values = node.meta["val"]
    dims = [own, *((None,) * value.dim() if isinstance(value, torch.Tensor) else () for value in values[1:])]
    written = writer.call(node.target, *kept, shape, *statistics, *writer.arguments(node)[5:], dims=dims)
    writer.put(node, written, dims)
