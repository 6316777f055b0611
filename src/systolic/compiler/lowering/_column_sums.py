"""Sums over rows: one for each place in what follows the dimensions that are summed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax

from ._context import current

_ROWS, _ELEMENTS = 8, 2**14
"""With fewer, a sum takes microseconds either way."""

_MOST_AT_ONCE = 32
"""Rows that XLA sums in the loop that computes them. A sum over more of them it rewrites as one over windows."""

_MOST_IN_TURN = 256
"""A product adds its rows one after the other, which loses digits with their number; XLA's own sum adds up parts."""

_FEWEST_IN_TURN = 16
"""Dimensions with no divisor from here to `_MOST_IN_TURN`, as large prime numbers, are left to XLA."""


def total(x: jax.Array, axes: Sequence[int], keepdims: bool = False, *, computed: bool = False) -> jax.Array:
    """The sum over some dimensions, of which there may be none; they are counted from the first one.

    On CPUs, XLA makes of a sum over leading dimensions (gradients of biases and of normalisations' weights, batch statistics)
    one over windows, of which its code goes through memory element by element: 3.1 ms for [32, 32, 32, 64] in float32, where
    products with rows of ones take 0.36 (2 cores, jaxlib 0.10.2). So there it is such products, dimension by dimension.

    Args:
        x: what is summed.
        axes: which of its dimensions.
        keepdims: whether they stay, with size 1.
        computed: whether `x` exists for this sum only, and is cheap to compute. A product reads its operand from memory;
            then the first few rows are summed in the loop that computes them, and less is written.
    """
    axes = tuple(axes)
    rows = _rows(x, axes, computed)
    if rows is None:
        return x.sum(axes, keepdims=keepdims)
    first = axes[0]
    sums = x.reshape(*x.shape[:first], *rows, *x.shape[axes[-1] + 1 :]).sum(first + len(rows) - 1)
    for _ in rows[2:]:
        sums = _over(sums, first + 1)
    if len(rows) > 1:
        # the outermost rows come as a product's result, or else in one: two sums in a row would be one to XLA
        sums = sums.sum(first) if len(rows) > 2 else _over(sums, first)
    return jnp.expand_dims(sums, axes) if keepdims else sums


def _over(x: jax.Array, axis: int) -> jax.Array:
    before = tuple(range(axis))
    return lax.dot_general(jnp.ones(x.shape[: axis + 1], x.dtype), x, (((axis,), (axis,)), (before, before)))


def _rows(x: jax.Array, axes: tuple[int, ...], computed: bool) -> list[int] | None:
    """The rows that products take, and last those summed at once; None where XLA's own sum is to be taken."""
    if current().platform != "cpu" or x.dtype not in (jnp.float32, jnp.float64) or not axes:
        return None
    first, last = axes[0], axes[-1]
    if axes != tuple(range(first, last + 1)) or last == x.ndim - 1:
        return None
    # On several devices only where each has parts of its own: of a product over divided rows, whole partial sums would be
    # exchanged. A product for each element before the rows pays only where little is left of them.
    shards, parts = max(current().batch_shards, 1), math.prod(x.shape[:first])
    if parts % shards if computed else parts != shards:
        return None
    sizes = x.shape[first : last + 1]
    if math.prod(sizes) < _ROWS or x.size < _ELEMENTS:
        return None
    at_once = _largest_divisor(sizes[-1], _MOST_AT_ONCE) if computed else 1
    rows: list[int] = []
    for size in (*sizes[:-1], sizes[-1] // at_once):
        if size <= _MOST_IN_TURN:
            rows.append(size)
            continue
        inner = _largest_divisor(size, _MOST_IN_TURN)
        if inner < _FEWEST_IN_TURN:
            return None
        rows += [size // inner, inner]
    return [*(size for size in rows if size > 1), at_once]


def _largest_divisor(size: int, limit: int) -> int:
    return next(n for n in range(limit, 0, -1) if size % n == 0)
