"""Bounded arrays, element by element and in other shapes; see `_bounded_sizes.py`.

A rule gives what stands for a node, and which of its dimensions have a size that values decide. It has to see to it that no
element which counts depends on one that does not.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import is_tagged_pointwise
from ._bounded_dims import Dims, Size
from ._bounded_table import (
    args_of,
    dim_of,
    dims_of,
    node_of,
    op_of,
    place_of,
    refuse_parts,
    refuse_unless,
    rule_for,
    together,
    value_of,
)
from ._bounded_writer import Writer

aten = torch.ops.aten


_POINTWISE_BESIDES = (
    aten._to_copy.default, aten.clone.default, aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.where.self,
    aten.threshold_backward.default, aten.gelu_backward.default, aten.tanh_backward.default, aten.sigmoid_backward.default,
    aten.silu_backward.default, aten.hardtanh_backward.default, aten.leaky_relu_backward.default, aten.elu_backward.default,
    aten.softplus_backward.default, aten.log_sigmoid_backward.default, aten.logical_not.default, aten.fill.Scalar,
    aten.fill.Tensor, aten.copy.default,
)  # fmt: skip

_BY_NUMBERS = {
    aten.div.Scalar: aten.div.Tensor, aten.div.Tensor: aten.div.Tensor,
    aten.mul.Scalar: aten.mul.Tensor, aten.mul.Tensor: aten.mul.Tensor,
}  # fmt: skip
"""Ops whose number may be a size, and the op for a tensor in its place."""
_PRODUCTS = (aten.mul.Scalar, aten.mul.Tensor)


def pointwise(writer: Writer, node: fx.Node) -> None:
    """Elements of the result depend on the elements in their places."""
    tensors = [one for one in args_of(node) if isinstance(one, fx.Node) and isinstance(one.meta.get("val"), torch.Tensor)]
    dims = together((value_of(one).shape, writer.dims[one]) for one in tensors)
    target, arguments = node.target, list(writer.arguments(node))
    if node.target in _BY_NUMBERS and isinstance(args_of(node)[1], int | float):
        divisor = writer.divisor_of_two(node, 1) if node.target in _PRODUCTS else None
        number = writer.multiple(node, 1) if divisor is None else divisor
        if number is not None:
            refuse_unless(value_of(args_of(node)[0]).is_floating_point(), "whole numbers")
            target, arguments[1] = _BY_NUMBERS[op_of(node)], number
        if divisor is not None:
            target, arguments[0] = aten.div.Tensor, writer.call(aten.mul.Scalar, arguments[0], 2, dims=dims)
    else:
        writer.same(node)
    writer.put(node, writer.call(target, *arguments, dims=dims, **writer.options(node)), dims)


def is_pointwise(op: Any) -> bool:
    """Whether elements of an op's result depend on those in their places alone."""
    return op in _POINTWISE_BESIDES or is_tagged_pointwise(op)


@rule_for(aten.ones_like.default, aten.zeros_like.default, aten.full_like.default, aten.empty_like.default, parted=True)
def _like(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    dims = dims_of(writer, args_of(node)[0])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims, **writer.options(node)), dims)


@rule_for(aten.bernoulli.p, aten.bernoulli.default, aten.rand_like.default, aten.randn_like.default, parted=True)
def _drawn(writer: Writer, node: fx.Node) -> None:
    """Numbers of their own for the elements that count, in place of those of a smaller array."""
    writer.same(node)
    dims = dims_of(writer, args_of(node)[0])
    given = [writer.kept(node_of(args_of(node)[0]), 0), *writer.arguments(node)[1:]]
    writer.put(node, writer.call(node.target, *given, dims=dims, **writer.options(node)), dims)


@rule_for(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default, aten.new_full.default, parted=True)
def _new(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 2)
    _made(writer, node, 1)


@rule_for(
    aten.zeros.default, aten.ones.default, aten.full.default, aten.empty.memory_format, aten.rand.default, aten.randn.default,
    parted=True,
)  # fmt: skip
def _make(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    _made(writer, node, 0)


@rule_for(aten.arange.default, aten.arange.start_step)
def _arange(writer: Writer, node: fx.Node) -> None:
    """The numbers of what counts, and further ones behind them."""
    end = 0 if node.target is aten.arange.default else 1
    if end:
        refuse_unless(args_of(node)[0] == 0 and (len(args_of(node)) < 3 or args_of(node)[2] == 1), "other steps")
        writer.same(node, 0, 2)
    bound, size = writer.length(writer.numbers_at(node, end, 0))
    writer.put(node, writer.call(aten.arange.default, bound, dims=(size,), **writer.options(node)), (size,))


def _made(writer: Writer, node: fx.Node, place: int) -> None:
    sizes = writer.sizes_at(node, place)
    dims = tuple(size for _, size in sizes)
    arguments = list(writer.arguments(node))
    arguments[place] = [n for n, _ in sizes]
    writer.put(node, writer.call(node.target, *arguments, dims=dims, **writer.options(node)), dims)


@rule_for(aten.expand.default, parted=True)
def _expand(writer: Writer, node: fx.Node) -> None:
    shape, own = value_of(args_of(node)[0]).shape, dims_of(writer, args_of(node)[0])
    before = [(n if size is None else size.bound, size) for n, size in zip(shape, own, strict=True)]
    given = writer.sizes_at(node, 1)
    # -1 stands for the size that is there already
    sizes = [before[place - len(given)] if one == (-1, None) else one for place, one in enumerate(given)]
    dims = together([(shape, own), ([0 if size else 1 for _, size in sizes], tuple(size for _, size in sizes))])
    written = writer.call(aten.expand.default, writer.nodes[node_of(args_of(node)[0])], [n for n, _ in sizes], dims=dims)
    writer.put(node, written, dims)


@rule_for(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten._reshape_copy.default, parted=True)
def _view(writer: Writer, node: fx.Node) -> None:
    """A dimension that values decide stays one, is joined with others, or is divided into itself and others.

    Joined with those behind it, what counts comes first as before; with those before it, it comes first in each part.
    """
    value, result = value_of(args_of(node)[0]), value_of(node).shape
    shape, own = _apart(value.shape, dims_of(writer, args_of(node)[0]))
    dims: list[Size | None] = []
    for source, target in _blocks(shape, result):
        sized = [place for place in source if own[place] is not None]
        if not sized:
            dims += [None] * len(target)
            continue
        refuse_unless(len(sized) == 1, "two sizes that are joined")
        before, behind = (
            math.prod(shape[q] for q in source if (q < sized[0]) is first and q != sized[0]) for first in (True, False)
        )
        until = [math.prod(result[q] for q in target[:k]) for k in range(len(target) + 1)]
        refuse_unless(until[-1] > 0, "no elements")
        at = next((k for k in range(len(target)) if until[k + 1] > before), 0)
        tail = until[-1] // until[at + 1]
        joined, rest = divmod(before, until[at])
        refuse_unless(joined > 0 and rest == 0, "a part of the dimensions before a size")
        size = own[sized[0]]
        assert size is not None
        size = writer.scaled(size, behind, tail, value)
        size = size if joined == 1 else writer.parted(size, joined)
        dims += [*[None] * at, size, *[None] * (len(target) - at - 1)]
    given = args_of(node)[1]
    if -1 in given:
        for size, one in zip(dims, given, strict=True):
            if size is not None and one != -1:
                writer.require(size, 1)  # of nothing PyTorch does not know what -1 stands for
    sizes = [n if size is None else size.bound for n, size in zip(result, dims, strict=True)]
    written = writer.call(node.target, writer.nodes[node_of(args_of(node)[0])], sizes, dims=tuple(dims))
    writer.put(node, written, tuple(dims))


def _apart(shape: Sequence[int], own: Dims) -> tuple[list[int], Dims]:
    """A shape before dimensions were joined with sizes behind them."""
    sizes: list[int] = []
    dims: list[Size | None] = []
    for n, size in zip(shape, own, strict=True):
        if size is not None and size.part and size.added is not None:
            ((joined, times),) = size.added[1]
            sizes += [times, joined.numbers[0]]
            dims += [None, joined]
        else:
            sizes.append(n)
            dims.append(size)
    return sizes, tuple(dims)


def _blocks(shape: Sequence[int], result: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of two shapes that hold as many elements, as few of them together as can be, in their order."""
    source, target = deque(range(len(shape))), deque(range(len(result)))
    while source or target:
        left, right = [source.popleft()] if source else [], [target.popleft()] if target else []
        while (a := math.prod(shape[q] for q in left)) != (b := math.prod(result[q] for q in right)):
            side, rest = (left, source) if a < b else (right, target)
            refuse_unless(bool(rest), "no elements")
            side.append(rest.popleft())
        yield left, right


@rule_for(aten.t.default, aten.transpose.int, aten.permute.default, aten.unsqueeze.default, parted=True)
def _moved(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    if node.target is aten.unsqueeze.default:
        place = place_of(args_of(node)[1], len(own) + 1)
        dims = (*own[:place], None, *own[place:])
    elif node.target is aten.permute.default:
        order = args_of(node)[1]
        refuse_unless(isinstance(order, list | tuple), "an order")
        dims = tuple(own[place_of(one, len(own))] for one in order)
    else:
        a, b = (0, len(own) - 1) if node.target is aten.t.default else (place_of(one, len(own)) for one in args_of(node)[1:3])
        order = list(range(len(own)))
        order[a], order[b] = order[b], order[a]
        dims = tuple(own[one] for one in order)
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims, **writer.options(node)), dims)


@rule_for(aten.squeeze.dim, parted=True)
def _squeeze(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    place = place_of(args_of(node)[1], len(own))
    refuse_unless(own[place] is None, "one element of many")
    gone = value_of(args_of(node)[0]).shape[place] == 1
    dims = (*own[:place], *own[place + 1 :]) if gone else own
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.unbind.int, parted=True)
def _unbind(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    place = dim_of(node, len(own))
    refuse_unless(own[place] is None, "each of many")
    dims = [(*own[:place], *own[place + 1 :])] * len(node.meta["val"])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.split.Tensor, aten.split_with_sizes.default, parted=True)
def _split(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    refuse_unless(own[place_of(args_of(node)[2] if len(args_of(node)) > 2 else 0, len(own))] is None, "parts of many")
    dims = [own] * len(node.meta["val"])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.log_sigmoid_forward.default, parted=True)
def _log_sigmoid(writer: Writer, node: fx.Node) -> None:
    """The second result is for the gradient, on some devices."""
    writer.same(node)
    own = dims_of(writer, args_of(node)[0])
    dims = [own, own if node.meta["val"][1].dim() == len(own) else (None,)]
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.repeat.default, parted=True)
def _repeat(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    own, times = dims_of(writer, args_of(node)[0]), args_of(node)[1]
    assert isinstance(times, list | tuple), "how often"
    dims = (*[None] * (len(times) - len(own)), *own)
    refuse_unless(all(size is None or often == 1 for size, often in zip(dims, times, strict=True)), "many one behind the other")
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for(aten.scalar_tensor.default)
def _scalar(writer: Writer, node: fx.Node) -> None:
    number = writer.multiple(node, 0)
    refuse_unless(number is not None, "options")
    kind = value_of(node).dtype
    writer.put(node, writer.call(aten._to_copy.default, number, dims=(), dtype=kind), ())


@rule_for(operator.getitem, parted=True)
def _getitem(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source, number = args_of(node)
    assert isinstance(number, int), "an element of a list"
    dims = writer.dims[node_of(source)][number]
    if (alone := writer.element(node_of(source), number)) is not None:
        writer.put(node, alone, dims)
        return
    writer.put(node, writer.call(operator.getitem, writer.nodes[node_of(source)], number, dims=dims), dims)


@rule_for(aten.cat.default, parted=True)
def _cat(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    parts = args_of(node)[0]
    assert isinstance(parts, list | tuple), "tensors"
    of_parts = [dims_of(writer, one) for one in parts]
    refuse_unless(len({len(one) for one in of_parts}) == 1, "tensors of other ranks")
    place = dim_of(node, len(of_parts[0]))
    others = {(*one[:place], *one[place + 1 :]) for one in of_parts}
    refuse_unless(len(others) == 1, "parts of different sizes")
    dims = of_parts[0]
    if any(one[place] is not None for one in of_parts):
        _one_behind_the_other(writer, node, [one[place] for one in of_parts], place, dims)
        return
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


def _one_behind_the_other(
    writer: Writer, node: fx.Node, sizes: Sequence[Size | None], place: int, dims: Sequence[Size | None]
) -> None:
    """Parts of which some have a size that values decide: what counts of each comes behind what counts of the one before."""
    for one in sizes:
        refuse_parts(one)
    values = [value_of(one) for one in args_of(node)[0]]
    parts = [(value.shape[place] if size is None else size.bound, size) for value, size in zip(values, sizes, strict=True)]
    whole = writer.sum_of(parts, values[0], any_bound=True)
    result = (*dims[:place], whole, *dims[place + 1 :])
    shape = [n if one is None else one.bound for n, one in zip(value_of(node).shape, dims, strict=True)]
    shape[place] = sum(n for n, _ in parts)
    joined = writer.call(node.target, *writer.arguments(node), dims=(None,) * len(shape), val=value_of(node).new_empty(shape))
    places = writer.places(whole.bound, values[0])
    like = places.meta["val"]
    number = like.new_empty(())
    index = places
    for which, (bound, size) in enumerate(parts, 1):
        before = parts[:which]
        if all(one is None for _, one in before):
            whole.inner.add((sum(n for n, _ in before),) * len(whole.numbers))
            continue
        end = writer.sum_of(before, values[0], any_bound=True)
        whole.inner.add(end.numbers)  # a gradient asks for each part by where it begins
        if size is None:
            continue
        # what lies behind this part is further away by what does not count of it
        flags = like.new_empty(like.shape, dtype=torch.bool)
        behind = writer.call(aten.ge.Tensor, places, writer.elements(end), dims=(None,), val=flags)
        rest = writer.call(aten.rsub.Scalar, writer.elements(size), bound, dims=(), val=number)
        shift = writer.call(aten.mul.Tensor, behind, rest, dims=(None,), val=like)
        index = writer.call(aten.add.Tensor, index, shift, dims=(None,), val=like)
    index = writer.call(aten.clamp.default, index, 0, sum(n for n, _ in parts) - 1, dims=(None,), val=like)
    if len(set(whole.numbers)) == 1:  # the parts of a whole, such as `h.split(counts.tolist())`
        writer.test([(whole, 1)], "eq", whole.numbers[0])
        index = writer.call(aten.slice.Tensor, index, 0, 0, whole.numbers[0], dims=(None,), val=like[: whole.numbers[0]])
        result = (*dims[:place], None, *dims[place + 1 :])
    writer.put(node, writer.call(aten.index_select.default, joined, place, index, dims=result), result)


@rule_for(aten.stack.default, parted=True)
def _stack(writer: Writer, node: fx.Node) -> None:
    writer.same(node, 1)
    of_parts = [dims_of(writer, one) for one in args_of(node)[0]]
    refuse_unless(len(set(of_parts)) == 1, "parts of different sizes")
    own = of_parts[0]
    place = dim_of(node, len(own) + 1)
    dims = (*own[:place], None, *own[place:])
    writer.put(node, writer.call(node.target, *writer.arguments(node), dims=dims), dims)


@rule_for("output", parted=True)
def _output(writer: Writer, node: fx.Node) -> None:
    """No result has a size that values decide."""
    given = args_of(node)[0]
    assert isinstance(given, list | tuple), "a flat list"
    for one in given:
        if isinstance(one, fx.Node) and isinstance(one.meta.get("val"), torch.Tensor):
            refuse_unless(all(size is None for size in writer.dims[one]), "a result of many")
    writer.nodes[node] = writer.graph.node_copy(node, writer.nodes.__getitem__)
    writer.dims[node] = ()
