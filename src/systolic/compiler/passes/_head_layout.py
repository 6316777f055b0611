"""Attention's projections in the layout of its kernel, in graphs for TPU.

PyTorch's graphs project to [batch * length, heads * width], split, and swap length and heads; the kernel takes and gives
[batch, heads, length, width]. XLA can leave out swaps between a product and a kernel only when the product's own
dimensions are these, so here products around attention get them: one less copy of every query, key, value, result, and
of all their gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import getitem
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ..lowering import lowers
from ._rewrites import VIEWS, arguments_of, copy_of, drop_unused, replace_call

aten = torch.ops.aten

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("project_heads(Tensor x, Tensor weight, Tensor? bias, int offset, int[] shape) -> Tensor")
_LIBRARY.define("heads_mm(Tensor[] parts, Tensor weight, Tensor? bias) -> Tensor")
_LIBRARY.define("heads_outer(Tensor[] parts, Tensor x) -> Tensor")
_LIBRARY.define("outer_heads(Tensor x, Tensor[] parts) -> Tensor")
_LIBRARY.define("heads_sum(Tensor[] parts) -> Tensor")
_PROJECT = torch.ops.systolic.project_heads.default
_MM = torch.ops.systolic.heads_mm.default
_OUTER = torch.ops.systolic.heads_outer.default
_OUTER_HEADS = torch.ops.systolic.outer_heads.default
_SUM = torch.ops.systolic.heads_sum.default

_KERNEL = torch.ops.systolic.jax_call.default


def with_heads_in_place(graph: fx.Graph, *, through_no_ops: bool = True, weight_parts: int = 1) -> fx.Graph:
    """A copy of `graph` in which products next to attention work in its layout.

    Args:
        graph: as captured.
        through_no_ops: also those that ops which change nothing lie between, as in transformers' models.
        weight_parts: into how many parts weights are divided.
    """
    copy = copy_of(graph)
    for node in list(copy.nodes) if through_no_ops else []:
        source = _unchanged(node)
        if source is not None:
            node.replace_all_uses_with(source)
    drop_unused(copy)
    for node in list(copy.nodes):
        if node.target in (aten.mm.default, aten.addmm.default):
            _project(copy, node)
    for node in list(copy.nodes):
        if node.op == "call_function":
            _consume(copy, node, weight_parts)
    drop_unused(copy)
    return copy


def _unchanged(node: fx.Node) -> fx.Node | None:
    """The argument whose values in whose shape a node gives.

    transformers' models view results of attention in the shape that they have, and join keys and values with those of an
    empty cache, of which the derivative cuts off nothing.
    """
    if node.target in VIEWS or node.target is aten.slice.Tensor:
        sources = [arguments_of(node)[0]]
    elif node.target is aten.cat.default:
        sources = [part for part in arguments_of(node)[0] if part.meta["val"].numel() != 0]
    else:
        return None
    if len(sources) != 1:
        return None
    before, after = sources[0].meta["val"], node.meta["val"]
    return sources[0] if before.shape == after.shape and before.dtype == after.dtype else None


def _project(graph: fx.Graph, product: fx.Node) -> None:
    """Compute queries, keys and values apart, where a product is nothing else than these."""
    ends = _projections(product)
    if not ends:
        return
    bias, x, weight = arguments_of(product) if product.target is aten.addmm.default else (None, *arguments_of(product))
    if product.kwargs or (isinstance(bias, fx.Node) and bias.meta["val"].dim() != 1):
        return
    for end, offset in ends:
        replace_call(graph, end, _PROJECT, (x, weight, bias, offset, list(end.meta["val"].shape)))


def _projections(product: fx.Node) -> list[tuple[fx.Node, int]]:
    """Ends of a product as [batch, heads, length, width] in a kernel, each with its first column; empty if not only there."""
    ends: list[tuple[fx.Node, int]] = []
    for view in product.users:
        if view.target not in VIEWS or view.meta["val"].dim() != 3:
            return []
        for user in view.users:
            for part, offset in _parts(user):
                swapped = _swapped_for_kernel(part)
                if not swapped:
                    return []
                ends += [(end, offset) for end in swapped]
            if user.target is not aten.split.Tensor and user.target not in VIEWS:
                return []
    return ends


def _parts(user: fx.Node) -> Iterator[tuple[fx.Node, int]]:
    """The four-dimensional views behind a projection's view, with their first columns."""
    if user.target is aten.split.Tensor and isinstance(arguments_of(user)[1], int) and arguments_of(user)[2:] in ((2,), (-1,)):
        for piece in user.users:
            index = arguments_of(piece)[1]
            assert isinstance(index, int), "a split is a tuple"
            for view in piece.users:
                yield view, index * arguments_of(user)[1]
    else:
        yield user, 0


def _swapped_for_kernel(view: fx.Node) -> list[fx.Node]:
    """The transposes of a view [batch, length, heads, width], if all that happens to it is that a kernel takes them."""
    if view.target not in VIEWS or view.meta["val"].dim() != 4:
        return []
    swaps = [user for user in view.users if _swaps(user) and all(u.target is _KERNEL for u in user.users)]
    return swaps if len(swaps) == len(view.users) else []


def _swaps(node: fx.Node) -> bool:
    """Whether a node swaps length and heads."""
    return node.target is aten.transpose.int and sorted(arguments_of(node)[1:]) == [1, 2] and node.meta["val"].dim() == 4


def _consume(graph: fx.Graph, node: fx.Node, weight_parts: int) -> None:
    """Let what takes results or gradients of attention, joined over the heads, take them as they are.

    A weight's gradient is divided by its rows. Where these are heads, and there are fewer of them than parts, no sharding of
    [heads, width, ...] says so, and the partitioner would sum the gradient whole on every core.
    """
    if node.target is aten.mm.default:
        left, right = arguments_of(node)
        parts = _joined(left)
        if parts:
            replace_call(graph, node, _MM, (parts, right, None))
        elif isinstance(left, fx.Node) and left.target is aten.t.default:
            parts, others = _joined(left.args[0]), _joined(right)
            if parts and all(part.meta["val"].shape[1] % weight_parts == 0 for part in parts):
                replace_call(graph, node, _OUTER, (parts, right))
            elif others and not parts:
                replace_call(graph, node, _OUTER_HEADS, (left.args[0], others))
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, left, right = arguments_of(node)
        parts = _joined(left)
        if parts and isinstance(bias, fx.Node) and bias.meta["val"].dim() == 1:
            replace_call(graph, node, _MM, (parts, right, bias))
    elif node.target is aten.sum.dim_IntList and arguments_of(node)[1:] == ([0], True) and not node.kwargs:
        parts = _joined(arguments_of(node)[0])
        if parts:
            replace_call(graph, node, _SUM, (parts,))


def _joined(node: object) -> list[fx.Node]:
    """The kernel's results [batch, heads, length, width] that lie side by side in [..., columns]; empty if it is not that."""
    if not isinstance(node, fx.Node):
        return []
    if node.target is aten.clone.default:
        return _joined(arguments_of(node)[0])
    if node.target is aten.cat.default and arguments_of(node)[1:] in ((2,), (-1,)):
        found = [_joined(part) for part in arguments_of(node)[0]]
        return [part for parts in found for part in parts] if all(found) else []
    if node.target not in VIEWS:
        return []
    source = arguments_of(node)[0]
    assert isinstance(source, fx.Node), "a view has a source"
    rank, width = source.meta["val"].dim(), node.meta["val"].shape[-1]
    if rank == 3 and source.meta["val"].shape[-1] == width:
        return _joined(source)
    while source.target is aten.clone.default:
        source = arguments_of(source)[0]
        assert isinstance(source, fx.Node), "a copy has a source"
    if rank != 4 or not _swaps(source):
        return []
    result = arguments_of(source)[0]
    assert isinstance(result, fx.Node), "a transpose has a source"
    _, heads, length, features = result.meta["val"].shape
    joins = width == heads * features and (node.meta["val"].dim() == 2 or node.meta["val"].shape[1] == length)
    return [result] if joins and _is_of_kernel(result) else []


def _is_of_kernel(node: fx.Node) -> bool:
    return node.target is getitem and isinstance(arguments_of(node)[0], fx.Node) and arguments_of(node)[0].target is _KERNEL


def _float32(subscripts: str, *operands: jax.Array) -> jax.Array:
    return jnp.einsum(subscripts, *operands, preferred_element_type=jnp.promote_types(operands[0].dtype, jnp.float32))


@lowers(_PROJECT)
def _project_heads(x: jax.Array, weight: jax.Array, bias: jax.Array | None, offset: int, shape: Sequence[int]) -> jax.Array:
    batch, heads, length, width = shape
    columns = slice(offset, offset + heads * width)
    parts = weight[:, columns].reshape(-1, heads, width)
    # without a bias the product is rounded anyway, and XLA fuses the sum in the kernel's derivative with it only then
    wide = x.dtype if bias is None else jnp.promote_types(x.dtype, jnp.float32)
    # not by einsum: it would make the weight the left operand, whose product XLA copies into the kernel's layout
    inner = (((2,), (0,)), ((), ()))
    out = jax.lax.dot_general(x.reshape(batch, length, -1), parts, inner, preferred_element_type=wide).transpose(0, 2, 1, 3)
    return out if bias is None else out + bias[columns].astype(out.dtype).reshape(heads, 1, width)


def _rows_of(parts: Sequence[jax.Array], weight: jax.Array) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Every part with its rows of a weight [columns, outputs], as [heads, width, outputs]."""
    offset = 0
    for part in parts:
        _, heads, _, width = part.shape
        yield part, weight[offset : offset + heads * width].reshape(heads, width, -1)
        offset += heads * width


@lowers(_MM)
def _heads_mm(parts: Sequence[jax.Array], weight: jax.Array, bias: jax.Array | None) -> jax.Array:
    out: Any = sum(_float32("bhtd,hdk->btk", part, rows) for part, rows in _rows_of(parts, weight))
    return (out if bias is None else out + bias.astype(out.dtype)).reshape(-1, weight.shape[1])


@lowers(_OUTER)
def _heads_outer(parts: Sequence[jax.Array], x: jax.Array) -> jax.Array:
    batch, _, length, _ = parts[0].shape
    rows = x.reshape(batch, length, -1)
    return jnp.concatenate([_float32("bhtd,btk->hdk", p, rows).astype(x.dtype).reshape(-1, x.shape[-1]) for p in parts])


@lowers(_OUTER_HEADS)
def _outer_heads(x: jax.Array, parts: Sequence[jax.Array]) -> jax.Array:
    batch, _, length, _ = parts[0].shape
    rows = x.reshape(batch, length, -1)
    over_rows = (((0, 1), (0, 2)), ((), ()))
    wide = jnp.promote_types(x.dtype, jnp.float32)
    found = [jax.lax.dot_general(rows, p, over_rows, preferred_element_type=wide).astype(x.dtype) for p in parts]
    return jnp.concatenate([f.reshape(x.shape[1], -1) for f in found], 1)


@lowers(_SUM)
def _heads_sum(parts: Sequence[jax.Array]) -> jax.Array:
    return jnp.concatenate([_sum_of_rows(part).reshape(1, -1) for part in parts], 1)


def _sum_of_rows(part: jax.Array) -> jax.Array:
    """The sum over batch and length, [heads, width]."""
    if part.dtype != jnp.bfloat16:
        return part.sum((0, 2), jnp.promote_types(part.dtype, jnp.float32))
    # a product with ones is the same sum in float32, and takes a tenth of the time: XLA's sum shuffles half-filled registers
    ones = jnp.ones((part.shape[0], part.shape[2], _SUBLANES), part.dtype)
    return _float32("bhtd,bte->hde", part, ones)[:, :, 0]


_SUBLANES = 8
"""The least number of columns that a TPU's product computes anyway."""
