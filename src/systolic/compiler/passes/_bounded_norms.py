"""Norms, variances and normalisation of bounded arrays; see `_bounded_sizes.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, NotBoundedError
from ._bounded_table import args_of, dims_of, node_of, place_of, reduced, refuse_unless, rule_for, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten


@rule_for(aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, parted=True)
def _norm(writer: Writer, node: fx.Node) -> None:
    """Of all that counts only where zeros add nothing to it: not for the order 0 and those below."""
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    order = args_of(node)[1] if len(args_of(node)) > 1 else 2
    order = 2 if order is None else order
    given = args_of(node)[2] if len(args_of(node)) > 2 else None
    gone = set(range(len(own))) if given is None else {place_of(one, len(own)) for one in given}
    refuse_unless(isinstance(order, int | float) and order > 0, "a norm of this order")
    keeps = len(args_of(node)) > 3 and bool(args_of(node)[3])
    dims = reduced(own, gone, keeps)
    kept = writer.kept(node_of(args_of(node)[0]), 0, sorted(gone))
    writer.put(node, writer.call(node.target, kept, *writer.arguments(node)[1:], dims=dims, **writer.options(node)), dims)


@rule_for(aten.var.correction, aten.std.correction, parted=True)
def _variance(writer: Writer, node: fx.Node) -> None:
    """By the mean of what counts, in two passes as PyTorch's is."""
    writer.same(node)
    source, correction = node_of(args_of(node)[0]), node.kwargs.get("correction")
    own, value = writer.dims[source], value_of(source)
    given = args_of(node)[1] if len(args_of(node)) > 1 else None
    gone = sorted({place_of(one, len(own)) for one in given}) if given else list(range(len(own)))
    counted = [size for place in gone if (size := own[place]) is not None]
    keeps = len(args_of(node)) > 2 and bool(args_of(node)[2]) or bool(node.kwargs.get("keepdim"))
    dims = reduced(own, gone, keeps)
    if not counted:
        writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims, **writer.options(node)), dims)
        return
    fewer = 1 if correction is None else correction
    refuse_unless(len(counted) == 1 and value.is_floating_point(), "a variance over two sizes")
    if not isinstance(fewer, int):
        raise NotBoundedError("a correction that is no whole number")
    writer.require(counted[0], fewer + 1)
    kept = reduced(own, gone, True)
    like = value.new_empty([1 if place in gone else n for place, n in enumerate(value.shape)])
    number = writer.elements(counted[0], math.prod(value.shape[place] for place in gone if own[place] is None))

    def mean(written: fx.Node, divisor: fx.Node) -> fx.Node:
        filled = writer.put_out(written, own, value, 0, gone)
        total = writer.call(aten.sum.dim_IntList, filled, gone, True, dims=kept, val=like)
        return writer.call(aten.div.Tensor, total, divisor, dims=kept, val=like)

    off = writer.call(aten.sub.Tensor, writer.nodes[source], mean(writer.nodes[source], number), dims=own, val=value)
    squares = writer.call(aten.mul.Tensor, off, off, dims=own, val=value)
    one_fewer = writer.call(aten.sub.Scalar, number, fewer, dims=(), val=number.meta["val"])
    written = mean(squares, one_fewer)
    if node.target is aten.std.correction:
        written = writer.call(aten.sqrt.default, written, dims=kept, val=like)
    for place in reversed(gone) if not keeps else ():
        like = like.squeeze(place)
        kept = (*kept[:place], *kept[place + 1 :])
        written = writer.call(aten.squeeze.dim, written, place, dims=kept, val=like)
    writer.put(node, written, dims)


@rule_for(aten.native_layer_norm.default, parted=True)
def _layer_norm(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source, shape = node_of(args_of(node)[0]), args_of(node)[1]
    own = writer.dims[source]
    assert isinstance(shape, list | tuple), "a shape"
    outer = len(own) - len(shape)
    refuse_unless(all(size is None for size in own[outer:]), "a norm over many")
    dims = [own, (*own[:outer], *(None,) * len(shape)), (*own[:outer], *(None,) * len(shape))]
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.native_layer_norm_backward.default, parted=True)
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


_BATCH_NORMS = (aten._native_batch_norm_legit.no_stats, aten._native_batch_norm_legit_functional.default)


@rule_for(*_BATCH_NORMS, parted=True)
def _batch_norm(writer: Writer, node: fx.Node) -> None:
    """By the statistics of what counts."""
    writer.same(node)
    source, weight, bias, *running, training, momentum, epsilon = args_of(node)
    own, value = _of_batch(writer, source)
    refuse_unless(training is True, "statistics of other batches")
    totals, like, number = _totals(writer, node_of(source))
    mean = _each(writer, aten.div.Tensor, totals(writer.nodes[node_of(source)]), number, like)
    off = writer.call(aten.sub.Tensor, writer.nodes[node_of(source)], mean, dims=own, val=value)
    squares = writer.call(aten.mul.Tensor, off, off, dims=own, val=value)
    total = totals(squares)
    variance = _each(writer, aten.div.Tensor, total, number, like)
    inverse = _each(writer, aten.add.Scalar, variance, epsilon, like)
    inverse = writer.call(aten.rsqrt.default, inverse, dims=_plain(like), val=like)
    written = writer.call(aten.mul.Tensor, off, inverse, dims=own, val=value)
    for op, parameter in ((aten.mul.Tensor, weight), (aten.add.Tensor, bias)):
        if parameter is not None:
            written = writer.call(op, written, _spread(writer, parameter, like), dims=own, val=value)
    flat = like.new_empty(like.numel())
    outputs = [written, _flat(writer, mean, flat), _flat(writer, inverse, flat)]
    if running:
        one_fewer = writer.call(aten.sub.Scalar, number, 1, dims=(), val=number.meta["val"])
        for one, new in zip(running, (mean, _each(writer, aten.div.Tensor, total, one_fewer, like)), strict=True):
            new = _each(writer, aten.mul.Scalar, _flat(writer, new, flat), momentum, flat)
            old = _each(writer, aten.mul.Scalar, writer.nodes[node_of(one)], 1 - momentum, flat)
            outputs.append(writer.call(aten.add.Tensor, old, new, dims=(None,), val=flat))
    writer.put_each(node, outputs, [own, *((None,) for _ in outputs[1:])])


@rule_for(aten.native_batch_norm_backward.default, parted=True)
def _batch_norm_backward(writer: Writer, node: fx.Node) -> None:
    """From Ioffe and Szegedy, "Batch normalization" (2015), section 3."""
    writer.same(node)
    grad, source, weight, _, _, mean, inverse, training, _, _ = args_of(node)
    own, value = _of_batch(writer, source)
    refuse_unless(training is True and dims_of(writer, grad) == own, "statistics of other batches")
    totals, like, number = _totals(writer, node_of(source))
    scale = _spread(writer, inverse, like)
    off = writer.call(aten.sub.Tensor, writer.nodes[node_of(source)], _spread(writer, mean, like), dims=own, val=value)
    normal = writer.call(aten.mul.Tensor, off, scale, dims=own, val=value)
    given = writer.nodes[node_of(grad)]
    of_bias = totals(given)
    of_weight = totals(writer.call(aten.mul.Tensor, given, normal, dims=own, val=value))
    rest = given
    for total, factor in ((of_weight, normal), (of_bias, None)):
        share = _each(writer, aten.div.Tensor, total, number, like)
        part = share if factor is None else writer.call(aten.mul.Tensor, factor, share, dims=own, val=value)
        rest = writer.call(aten.sub.Tensor, rest, part, dims=own, val=value)
    rest = writer.call(aten.mul.Tensor, rest, scale, dims=own, val=value)
    if weight is not None:
        rest = writer.call(aten.mul.Tensor, rest, _spread(writer, weight, like), dims=own, val=value)
    flat = like.new_empty(like.numel())
    of_parameters = [_flat(writer, total, flat) for total in (of_weight, of_bias)]
    writer.put_each(node, [rest, *of_parameters], [own, (None,), (None,)])


def _of_batch(writer: Writer, source: Any) -> tuple[Dims, torch.Tensor]:
    own, value = dims_of(writer, source), value_of(source)
    refuse_unless(value.dim() > 1 and own[1] is None and value.dtype in (torch.float32, torch.float64), "a batch of this kind")
    return own, value


def _plain(value: torch.Tensor) -> Dims:
    return (None,) * value.dim()


def _each(writer: Writer, op: Any, one: fx.Node, number: Any, like: torch.Tensor) -> fx.Node:
    return writer.call(op, one, number, dims=_plain(like), val=like)


def _spread(writer: Writer, one: Any, like: torch.Tensor) -> fx.Node:
    """A vector with an element for each channel, in the shape of statistics."""
    return writer.call(aten.view.default, writer.nodes[node_of(one)], list(like.shape), dims=_plain(like), val=like)


def _flat(writer: Writer, one: fx.Node, flat: torch.Tensor) -> fx.Node:
    """A number for each channel, in the shape of statistics, as a vector."""
    return writer.call(aten.view.default, one, [flat.numel()], dims=(None,), val=flat)


def _totals(writer: Writer, source: fx.Node) -> tuple[Callable[[fx.Node], fx.Node], torch.Tensor, fx.Node]:
    """A sum over what counts, for each channel; the shape of such sums; how many elements are in one."""
    own, value = writer.dims[source], value_of(source)
    places = [place for place in range(value.dim()) if place != 1]
    like = value.new_empty([n if place == 1 else 1 for place, n in enumerate(value.shape)])
    sizes = [size for size in own if size is not None]
    refuse_unless(len(sizes) == 1, "statistics over two sizes")
    others = math.prod(n for place, n in enumerate(value.shape) if place != 1 and own[place] is None)
    writer.require(sizes[0], 2 if others == 1 else 1)

    def total(written: fx.Node) -> fx.Node:
        filled = writer.put_out(written, own, value, 0)
        return writer.call(aten.sum.dim_IntList, filled, places, True, dims=_plain(like), val=like)

    return total, like, writer.elements(sizes[0], others)
