"""Losses of bounded arrays: means over what counts; see `_bounded_sizes.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, Size
from ._bounded_positions import is_position
from ._bounded_table import args_of, dims_of, node_of, op_of, refuse_unless, rule_for, value_of
from ._bounded_writer import Writer
from ._cross_entropy import BACKWARD as CROSS_ENTROPY_BACKWARD
from ._cross_entropy import FORWARD as CROSS_ENTROPY

aten = torch.ops.aten


def _target(writer: Writer, target: Any, ignored: Any) -> fx.Node:
    """Classes, where those that do not count are ignored."""
    refuse_unless(isinstance(ignored, int), "classes")
    return writer.kept(node_of(target), ignored)


def _logits(writer: Writer, logits: fx.Node, target: fx.Node, weight: Any, at: int) -> tuple[fx.Node, Dims]:
    """Logits, without what does not count among the classes, and the dimensions of classes for them."""
    dims = writer.dims[logits]
    size, of_target = dims[at], (*dims[:at], *dims[at + 1 :])
    refuse_unless(writer.dims[target] == of_target, "classes")
    refuse_unless(size is None or (weight is None and is_position(writer, target, size)), "one class of many")
    return writer.kept(logits, -math.inf, [at]), of_target


@rule_for(CROSS_ENTROPY, aten.nll_loss_forward.default, aten.nll_loss2d_forward.default, parted=True)
def _cross_entropy(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    logits, target, weight, reduction, ignored = args_of(node)
    kept, of_target = _logits(writer, node_of(logits), node_of(target), weight, min(1, len(dims_of(writer, logits)) - 1))
    of_loss = of_target if reduction == 0 else ()
    written = writer.call(
        node.target,
        kept,
        _target(writer, target, ignored),
        None if weight is None else writer.nodes[node_of(weight)],
        reduction,
        ignored,
        dims=[of_loss, ()],
    )
    writer.put(node, written, [of_loss, ()])


@rule_for(CROSS_ENTROPY_BACKWARD, aten.nll_loss_backward.default, aten.nll_loss2d_backward.default, parted=True)
def _cross_entropy_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    grad, logits, target, weight, reduction, ignored, total = args_of(node)
    dims = dims_of(writer, logits)
    kept, of_target = _logits(writer, node_of(logits), node_of(target), weight, min(1, len(dims) - 1))
    refuse_unless(dims_of(writer, grad) == (of_target if reduction == 0 else ()), "a gradient of another size")
    written = writer.call(
        node.target,
        writer.nodes[node_of(grad)],
        kept,
        _target(writer, target, ignored),
        None if weight is None else writer.nodes[node_of(weight)],
        reduction,
        ignored,
        writer.nodes[node_of(total)],
        dims=dims,
    )
    writer.put(node, written, dims)


_NONE, _MEAN, _SUM = 0, 1, 2
_PAIRS = {
    aten.mse_loss.default: 2, aten.smooth_l1_loss.default: 2, aten.huber_loss.default: 2, aten.soft_margin_loss.default: 2,
}  # fmt: skip
_PAIRS_BACKWARD = {
    aten.mse_loss_backward.default: 3, aten.smooth_l1_loss_backward.default: 3, aten.huber_loss_backward.default: 3,
    aten.soft_margin_loss_backward.default: 3,
}  # fmt: skip
"""Losses of pairs of tensors, and their gradients, with the place of the reduction."""


def _pair(writer: Writer, one: Any, other: Any) -> tuple[Dims, list[Size]]:
    dims = dims_of(writer, one)
    sizes = [size for size in dims if size is not None]
    refuse_unless(dims_of(writer, other) == dims and value_of(one).shape == value_of(other).shape, "a pair of different sizes")
    refuse_unless(bool(sizes), "no sizes")
    return dims, sizes


def _divided(writer: Writer, total: fx.Node, sizes: Sequence[Size], others: int, value: torch.Tensor) -> fx.Node:
    """A sum over sizes, and over as many other elements, by how many there are."""
    first, *rest = sizes
    total = writer.call(aten.div.Tensor, total, writer.elements(first, others), dims=(), val=value)
    for size in rest:
        total = writer.call(aten.div.Tensor, total, writer.elements(size), dims=(), val=value)
    return total


def _others(dims: Dims, value: torch.Tensor) -> int:
    return math.prod(n for n, size in zip(value.shape, dims, strict=True) if size is None)


@rule_for(*_PAIRS, parted=True)
def _pair_loss(writer: Writer, node: fx.Node) -> None:
    """The loss of each element, of which those that count are added."""
    writer.same(node)
    place = _PAIRS[op_of(node)]
    reduction = args_of(node)[place] if len(args_of(node)) > place else _MEAN
    arguments = list(writer.arguments(node))
    arguments[place : place + 1] = [_NONE]
    _finish_loss(writer, node, arguments, reduction)


@rule_for(aten.binary_cross_entropy_with_logits.default, parted=True)
def _logits_loss(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    given = [*writer.arguments(node), None, None, _MEAN]
    logits, target, weight, positive, reduction = given[:5]
    refuse_unless(len(args_of(node)) in (2, 5) and weight is None and positive is None, "weights")
    _finish_loss(writer, node, [logits, target, None, None, _NONE], reduction)


def _finish_loss(writer: Writer, node: fx.Node, arguments: Sequence[Any], reduction: Any) -> None:
    dims, sizes = _pair(writer, args_of(node)[0], args_of(node)[1])
    value = value_of(args_of(node)[0])
    loss = writer.call(node.target, *arguments, dims=dims, val=value, **writer.options(node))
    if reduction == _NONE:
        writer.put(node, loss, dims)
        return
    total = writer.call(aten.sum.default, writer.put_out(loss, dims, value, 0), dims=())
    if reduction == _MEAN:
        total = _divided(writer, total, sizes, _others(dims, value), node.meta["val"])
    writer.put(node, total, ())


@rule_for(*_PAIRS_BACKWARD, parted=True)
def _pair_loss_backward(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    dims, sizes = _pair(writer, args_of(node)[1], args_of(node)[2])
    place = _PAIRS_BACKWARD[op_of(node)]
    grad, reduction, arguments = node_of(args_of(node)[0]), args_of(node)[place], list(writer.arguments(node))
    refuse_unless(writer.dims[grad] == (dims if reduction not in (_MEAN, _SUM) else ()), "a gradient of another size")
    if reduction == _MEAN:
        others = _others(dims, value_of(args_of(node)[1]))
        arguments[0] = _divided(writer, arguments[0], sizes, others, value_of(grad))
        arguments[place] = _SUM
    writer.put(node, writer.call(node.target, *arguments, dims=dims), dims)
