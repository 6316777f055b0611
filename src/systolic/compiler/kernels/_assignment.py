"""The assignment of least cost (Hungarian matching) inside a program: SciPy's would need the costs on the host.

Jonker and Volgenant's shortest augmenting paths, as in D. F. Crouse, "On implementing 2D rectangular assignment algorithms",
2016, which SciPy follows; ties are broken as SciPy breaks them, so that matchings are the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import torch

from .._capture_thread import replaced_everywhere
from ._jax_op import jax_op
from ._within import within

_NONE = -1


class _Search(NamedTuple):
    """The search for one row's shortest augmenting path.

    Attributes:
        row: where it is.
        sink: the column without a row where it ended; -1 while it goes on, -2 where no column can be reached.
        least: the length of the path to `row`.
        lengths: by column: of the shortest path found, [columns].
        before: by column: the row from which that path comes, [columns].
        rows: which rows it has been to, [rows].
        columns: which columns it has been to, [columns].
        order: by column: its place among those that are left, which breaks ties, [columns].
        left: how many columns are left.
    """

    row: jax.Array
    sink: jax.Array
    least: jax.Array
    lengths: jax.Array
    before: jax.Array
    rows: jax.Array
    columns: jax.Array
    order: jax.Array
    left: jax.Array


class _Matching(NamedTuple):
    """Prices of rows and columns, and for each its partner so far, or -1."""

    row_price: jax.Array
    column_price: jax.Array
    column_of: jax.Array
    row_of: jax.Array


def _stepped(cost: jax.Array, found: _Matching, search: _Search) -> _Search:
    """Go to the nearest column, and on to the row that it belongs to."""
    reached = search.least + cost[search.row] - found.row_price[search.row] - found.column_price
    shorter = ~search.columns & (reached < search.lengths)
    lengths = jnp.where(shorter, reached, search.lengths)
    before = jnp.where(shorter, search.row, search.before)
    nearest = jnp.min(jnp.where(search.columns, jnp.inf, lengths))
    ties = ~search.columns & (lengths == nearest)
    free = ties & (found.row_of == _NONE)
    first = jnp.argmin(jnp.where(ties, search.order, cost.shape[1]))
    column = jnp.where(free.any(), jnp.argmax(jnp.where(free, search.order, -1)), first)
    place = search.order[column]
    # the last of those that are left takes the place of the one that is taken
    order = jnp.where(search.order == search.left - 1, place, search.order).at[column].set(cost.shape[1])
    owner = found.row_of[column]
    sink = jnp.where(jnp.isinf(nearest), -2, jnp.where(owner == _NONE, column, _NONE))
    return _Search(
        jnp.where(owner == _NONE, search.row, owner), sink, nearest, lengths, before, search.rows.at[search.row].set(True),
        search.columns.at[column].set(True), order, search.left - 1,
    )  # fmt: skip


def _augmented(cost: jax.Array, row: jax.Array, found: _Matching) -> _Matching:
    """The matching with one more row; one that has no column is left without."""
    count, width = cost.shape
    start = _Search(
        row, jnp.asarray(_NONE), jnp.zeros((), cost.dtype), jnp.full(width, jnp.inf, cost.dtype), jnp.full(width, _NONE),
        jnp.zeros(count, jnp.bool_), jnp.zeros(width, jnp.bool_), jnp.arange(width)[::-1], jnp.asarray(width),
    )  # fmt: skip
    end = jax.lax.while_loop(lambda s: s.sink == _NONE, lambda s: _stepped(cost, found, s), start)
    others = end.rows & (jnp.arange(count) != row)
    row_price = found.row_price + jnp.where(others, end.least - end.lengths[found.column_of], 0.0)
    row_price = row_price.at[row].add(end.least)
    column_price = found.column_price - jnp.where(end.columns, end.least - end.lengths, 0.0)

    def hand_on(state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        column, column_of, row_of = state
        owner = end.before[column]
        following = jnp.where(owner == row, _NONE, column_of[owner])
        return following, column_of.at[owner].set(column), row_of.at[column].set(owner)

    begin = (end.sink, found.column_of, found.row_of)
    _, column_of, row_of = jax.lax.while_loop(lambda state: state[0] >= 0, hand_on, begin)
    return _Matching(row_price, column_price, column_of, row_of)


@jax_op
def _assign(cost: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows, ascending, and the column of each; -1 for one that none can be given, and for all where a cost is NaN or -inf."""
    if not cost.size:
        return jnp.zeros(0, jnp.int64), jnp.zeros(0, jnp.int64)
    cost = cost.astype(jnp.float64)  # as SciPy computes
    flipped = cost.shape[0] > cost.shape[1]
    wide = cost.T if flipped else cost
    count, width = wide.shape
    none = _Matching(jnp.zeros(count), jnp.zeros(width), jnp.full(count, _NONE), jnp.full(width, _NONE))
    is_valid = ~(jnp.isnan(cost) | (cost == -jnp.inf)).any()
    usable = jnp.where(is_valid, wide, jnp.inf)
    found = jax.lax.fori_loop(0, count, lambda row, matching: _augmented(usable, row, matching), none).column_of
    if not flipped:
        return jnp.arange(count), found
    order = jnp.argsort(found)
    return found[order], order


def linear_sum_assignment(cost_matrix: torch.Tensor, maximize: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """SciPy's function of this name, for a tensor.

    Args:
        cost_matrix: [rows, columns].
        maximize: whether the sum is to be the largest.

    Returns:
        Indices of rows, ascending, and the column of each, int64 [min(rows, columns)].
    """
    if cost_matrix.dim() != 2:
        raise ValueError(f"expected a matrix (2-D array), got a {cost_matrix.dim()} array")
    cost = cost_matrix.detach()
    rows, columns = _assign(-cost if maximize else cost)
    count, width = cost.shape
    name = "linear_sum_assignment"
    return within(rows, 0, count, "row of a feasible matching", name), within(
        columns, 0, width, "column of a feasible matching", name
    )


@contextlib.contextmanager
def assigning_inside(tensor_behind: Callable[[object], object], array_of: Callable[[torch.Tensor], object]) -> Iterator[None]:
    """Inside the block, SciPy's function also takes traced tensors and arrays, and gives arrays of the trace.

    Args:
        tensor_behind: the tensor that an array of the trace stands for; other values as they are.
        array_of: the array of the trace that stands for a tensor.
    """

    def assignment(cost_matrix: object, maximize: bool = False) -> object:
        tensor = tensor_behind(cost_matrix)
        if not isinstance(tensor, torch.Tensor):
            return original(cost_matrix, maximize)
        return tuple(map(array_of, linear_sum_assignment(tensor, maximize)))

    if (scipy := sys.modules.get("scipy.optimize")) is None:
        yield
        return
    original = scipy.linear_sum_assignment
    with replaced_everywhere((scipy, "linear_sum_assignment", assignment)):
        yield
