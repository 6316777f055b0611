"""Convolutions along bounded dimensions: behind what counts there are zeros, as padding has them; see `_bounded_sizes.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, Size
from ._bounded_table import args_of, dims_of, node_of, refuse_parts, refuse_unless, rule_for, value_of
from ._bounded_writer import Writer

aten = torch.ops.aten


@rule_for(aten.convolution.default, parted=True)
def _convolution(writer: Writer, node: fx.Node) -> None:
    writer.same(node)
    source, weight, bias, *options = args_of(node)
    dims = _result(writer, source, weight, options)
    kept = writer.kept(node_of(source), 0, list(range(2, len(dims))))
    rest = writer.arguments(node)[1:]
    refuse_unless(bias is None or not any(dims_of(writer, bias)), "a bias of a size")
    writer.put(node, writer.call(node.target, kept, *rest, dims=dims), dims)


@rule_for(aten.convolution_backward.default, parted=True)
def _convolution_backward(writer: Writer, node: fx.Node) -> None:
    """No gradient comes from what does not count, nor does a weight's take any of it."""
    writer.same(node)
    grad, source, weight, _, *options = args_of(node)
    refuse_unless(dims_of(writer, grad) == _result(writer, source, weight, options), "a gradient of another size")
    kept = [writer.kept(node_of(one), 0) for one in (grad, source)]
    values = node.meta["val"][1:]
    plain = [(None,) * one.dim() if isinstance(one, torch.Tensor) else () for one in values]
    dims = [dims_of(writer, source), *plain]
    writer.put(node, writer.call(node.target, *kept, *writer.arguments(node)[2:], dims=dims), dims)


def _result(writer: Writer, source: Any, weight: Any, options: Sequence[Any]) -> Dims:
    """The dimensions of what a convolution makes of a tensor."""
    stride, padding, dilation, transposed = options[:4]
    own, kernel = list(dims_of(writer, source)), value_of(weight).shape[2:]
    refuse_unless(len(own) > 2 and own[1] is None and not any(dims_of(writer, weight)), "channels of a size")
    dims: list[Size | None] = [own[0], None]
    for place, size in enumerate(own[2:]):
        if size is None:
            dims.append(None)
            continue
        refuse_parts(size)
        refuse_unless(not transposed and stride[place % len(stride)] == 1, "a convolution that leaves places out")
        added = 2 * padding[place % len(padding)] - dilation[place % len(dilation)] * (kernel[place] - 1)
        writer.require(size, max(1, 1 - added))
        parts = [(size.bound, size), *([(added, None)] if added else [])]
        dims.append(writer.sum_of(parts, value_of(source)))
    return tuple(dims)
