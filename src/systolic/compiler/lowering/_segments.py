"""`torch.segment_reduce` over segments that lie one behind the other, and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._operand import Number
from ._table import lowers

aten = torch.ops.aten

_REDUCE: dict[str, Callable[..., jax.Array]] = {
    "sum": jax.ops.segment_sum, "mean": jax.ops.segment_sum, "prod": jax.ops.segment_prod, "max": jax.ops.segment_max,
    "min": jax.ops.segment_min,
}  # fmt: skip
_WITH_INITIAL: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "sum": jnp.add, "mean": jnp.add, "prod": jnp.multiply, "max": jnp.maximum, "min": jnp.minimum,
}  # fmt: skip


@lowers(aten.segment_reduce.default)
def _segment_reduce(
    data: jax.Array,
    reduce: str,
    *,
    lengths: jax.Array | None = None,
    indices: jax.Array | None = None,
    offsets: jax.Array | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> jax.Array:
    """Segments along the last dimension of `lengths` or `offsets`; those before it are the same in `data`."""
    assert indices is None, "PyTorch takes none"
    counts = _counts(lengths, offsets)
    if lengths is not None and not unsafe:
        size = data.shape[counts.ndim - 1]
        current().require_in_range(counts.sum(-1), size + 1, low=size, what="sum of lengths")

    def one(data: jax.Array, counts: jax.Array) -> jax.Array:
        segments = len(counts)
        found = _REDUCE[reduce](data, _segment_of(data, counts), segments + 1)[:segments]
        if initial is not None:
            found = _WITH_INITIAL[reduce](found, jnp.asarray(initial, data.dtype))
        if reduce != "mean":
            return found
        each = counts.reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype)
        mean = found / each  # of nothing NaN, as in PyTorch, or the initial value
        return mean if initial is None else jnp.where(each == 0, jnp.asarray(initial, data.dtype), mean)

    return _over_leading(one, counts.ndim - 1)(data, counts)


@lowers(aten._segment_reduce_backward.default)
def _segment_reduce_backward(
    grad: jax.Array,
    output: jax.Array,
    data: jax.Array,
    reduce: str,
    *,
    lengths: jax.Array | None = None,
    offsets: jax.Array | None = None,
    axis: int = 0,
    initial: Number | None = None,
) -> jax.Array:
    """Elements that are equally large share the gradient of their maximum, where it is positive."""
    counts = _counts(lengths, offsets)

    def one(grad: jax.Array, output: jax.Array, data: jax.Array, counts: jax.Array) -> jax.Array:
        segment = _segment_of(data, counts)

        def sums(x: jax.Array) -> jax.Array:
            return jax.ops.segment_sum(x, segment, len(counts) + 1)[segment]

        def each(x: jax.Array) -> jax.Array:
            return jnp.take(x, segment, axis=0, mode="fill", fill_value=0)

        given, found = each(grad), each(output)
        if reduce == "mean":
            given = given / jnp.maximum(each(counts), 1).reshape(-1, *[1] * (data.ndim - 1)).astype(data.dtype)
        elif reduce in ("max", "min"):
            is_it = ((data == found) | (jnp.isnan(data) & jnp.isnan(found))).astype(data.dtype)
            given = given * is_it
            # PyTorch's kernel divides no gradient below zero (aten/src/ATen/native/SegmentReduce.cpp)
            given = jnp.where(given > 0, given / jnp.maximum(sums(is_it), 1), given)
        elif reduce == "prod":
            is_zero = data == 0
            zeros = sums(is_zero.astype(data.dtype))
            others = jax.ops.segment_prod(jnp.where(is_zero, jnp.ones_like(data), data), segment, len(counts) + 1)[segment]
            others = others if initial is None else others * jnp.asarray(initial, data.dtype)
            without = jnp.where(is_zero, others, others / jnp.where(is_zero, jnp.ones_like(data), data))
            given = given * jnp.where(zeros - is_zero > 0, jnp.zeros_like(data), without)
        return given

    return _over_leading(one, counts.ndim - 1)(grad, output, data, counts)


def _counts(lengths: jax.Array | None, offsets: jax.Array | None) -> jax.Array:
    """How many elements each segment has."""
    if lengths is not None:
        return lengths
    assert offsets is not None, "PyTorch asks for one of them"
    return jnp.diff(offsets, axis=-1)


def _segment_of(data: jax.Array, counts: jax.Array) -> jax.Array:
    """By element the number of its segment; behind the last one that of no segment."""
    return jnp.searchsorted(jnp.cumsum(counts), jnp.arange(data.shape[0]), side="right")


def _over_leading(one: Callable[..., jax.Array], dims: int) -> Callable[..., jax.Array]:
    for _ in range(dims):
        one = jax.vmap(one)
    return one
