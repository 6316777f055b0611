"""Attention and its gradients as kernels for TPU that go through the scores tile by tile, with masks and dropout.

The algorithm is flash attention's (https://arxiv.org/abs/2205.14135; backward as in https://arxiv.org/abs/2307.08691). Tiles of
scores are transposed, [keys, queries]: a query's maximum and sum then run over sublanes, which the vector unit does register by
register, where over lanes each would be a shuffle. What a tile adds to results and to gradients of queries is accumulated as
[features, queries], so that heads of 64 features fill whole registers.

The last tile of a length may reach beyond it. There a kernel finds whatever lies in its memory, not-a-number too, and what it
writes there is dropped: so arrays need no padding, which XLA would do one by one, at several times a kernel's own cost.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from ..lowering._bits import PAIRED, halves_suffice, hashed, keeps, row_bits, row_halves, upper_half_keeps
from ._flash_problem import FlashProblem, Operands


class _Tile(NamedTuple):
    """The step of the grid that a kernel is in; heads are counted in groups.

    `is_first` and `is_last` are of a row or a column of tiles, `begins` and `ends` of all tiles of the heads.
    """

    batch: jax.Array
    heads: jax.Array
    row: jax.Array
    column: jax.Array
    is_first: jax.Array
    is_last: jax.Array
    begins: jax.Array
    ends: jax.Array


# dimensions that a product sums over, of its left and its right operand
_ROWS_BY_ROWS = (((1,), (1,)), ((), ()))
_COLUMNS_BY_COLUMNS = (((0,), (0,)), ((), ()))
_COLUMNS_BY_ROWS = (((1,), (0,)), ((), ()))


def flash_forward(problem: FlashProblem, operands: Operands) -> tuple[jax.Array, jax.Array]:
    """Attention (batch, heads, length, other features), and the logarithms of the sums of its rows' exponentials.

    Those are (batch, heads, 1, length), float32; a row that may look nowhere has a result of zero, and zero here.
    """
    problem = dataclasses.replace(problem, groups_sum=False)
    batch, heads, length, _ = operands.query.shape
    width = operands.value.shape[-1]
    table = _tile_table(problem, by_column=False)
    blocks = _Blocks(problem, operands)
    return pl.pallas_call(
        functools.partial(_forward_kernel, problem, operands.seen is not None, operands.mask is not None),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(_scalars(table, operands)),
            grid=_grid(problem, batch, heads, table),
            in_specs=[*blocks.inputs(), *blocks.masks()],
            out_specs=[blocks.queries(width), blocks.per_query()],
            scratch_shapes=[
                *[pltpu.VMEM((problem.heads, 1, problem.rows), jnp.float32)] * 2,
                pltpu.VMEM((problem.heads, width, problem.rows), jnp.float32),
            ],
        ),
        out_shape=[
            jax.ShapeDtypeStruct((batch, heads, length, width), operands.query.dtype),
            jax.ShapeDtypeStruct((batch, heads, 1, length), jnp.float32),
        ],
        compiler_params=_parameters(problem),
        cost_estimate=_cost(problem, operands, table, products=2),
        name=_named("attention_forward", problem, operands),
        interpret=problem.interpret,
    )(*_scalars(table, operands), *_arrays(operands))


def flash_backward(
    problem: FlashProblem, operands: Operands, result: jax.Array, sums: jax.Array, cotangent: jax.Array
) -> tuple[jax.Array, ...]:
    """Gradients of query, key and value, and of the mask as it is, if it is trained.

    Those of key and value are for each head of the query, unless `problem.groups_sum`.

    Args:
        problem: as it was in forward.
        operands: as they were in forward.
        result: of `flash_forward`.
        sums: of `flash_forward`.
        cotangent: of the result.
    """
    means = (result.astype(jnp.float32) * cotangent.astype(jnp.float32)).sum(-1)[:, :, None]
    arrays = (cotangent, sums, means)
    if problem.at_once:
        return tuple(_gradients(problem, operands, arrays, of_query=True, of_keys=True))
    of_query = dataclasses.replace(problem, mask_trained=False, mask_shared=False, groups_sum=False)
    (query,) = _gradients(of_query, operands, arrays, of_query=True, of_keys=False)
    return query, *_gradients(problem, operands, arrays, of_query=False, of_keys=True)


def _gradients(
    problem: FlashProblem, operands: Operands, arrays: Sequence[jax.Array], *, of_query: bool, of_keys: bool
) -> Sequence[jax.Array]:
    batch, heads, length, features = operands.query.shape
    width = operands.value.shape[-1]
    table = _tile_table(problem, by_column=of_keys)
    blocks = _Blocks(problem, operands)
    kept = problem.tiles[0] if of_keys else 1
    key_heads = heads // problem.group if problem.groups_sum else heads
    # what is added up outside is rounded there
    kind = operands.key.dtype if key_heads == operands.key.shape[1] else jnp.dtype(jnp.float32)
    outputs, results, scratch = [], [], []
    if of_query:
        outputs.append(blocks.queries(features, tiles=kept))
        results.append(jax.ShapeDtypeStruct(operands.query.shape, operands.query.dtype))
        scratch.append(pltpu.VMEM((problem.heads, kept, features, problem.rows), jnp.float32))
    if of_keys:
        for size in (features, width):
            outputs.append(blocks.of_keys(size))
            results.append(jax.ShapeDtypeStruct((batch, key_heads, operands.key.shape[2], size), kind))
            kept_heads = problem.key_heads if problem.groups_sum else problem.heads
            scratch.append(pltpu.VMEM((kept_heads, problem.kept_columns, problem.columns, size), jnp.float32))
    if problem.mask_trained:
        assert operands.mask is not None, "a trained mask is there"
        outputs.append(blocks.of_mask())
        results.append(jax.ShapeDtypeStruct(operands.mask.shape, jnp.float32 if problem.mask_shared else operands.mask.dtype))
    return pl.pallas_call(
        functools.partial(_backward_kernel, problem, operands.seen is not None, operands.mask is not None, of_query, of_keys),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=len(_scalars(table, operands)),
            grid=_grid(problem, batch, heads, table),
            in_specs=[*blocks.inputs(), blocks.queries(width), blocks.per_query(), blocks.per_query(), *blocks.masks()],
            out_specs=outputs,
            scratch_shapes=scratch,
        ),
        out_shape=results,
        compiler_params=_parameters(problem),
        cost_estimate=_cost(problem, operands, table, products=2 + of_query + 2 * of_keys),
        name=_named("attention_backward" if of_query and of_keys else "attention_partial_backward", problem, operands),
        interpret=problem.interpret,
    )(*_scalars(table, operands), *_arrays(operands)[:3], *arrays, *_arrays(operands)[3:])


def _grid(problem: FlashProblem, batch: int, heads: int, table: np.ndarray) -> tuple[int, ...]:
    """Batch elements, groups of heads, tiles; what batch elements add up, they add one after another.

    Groups of heads that share keys are a dimension of their own where they add up gradients.
    """
    groups, tiles = heads // problem.heads, table.shape[1]
    if problem.keys_wait:
        return batch, groups // problem.steps_of_group, problem.steps_of_group, tiles
    return (groups, batch, tiles) if problem.mask_shared else (batch, groups, tiles)


def _parameters(problem: FlashProblem) -> pltpu.CompilerParams:
    # two TensorCores of a device would each take a part of a parallel dimension: not of what steps add up
    among = ("parallel", "arbitrary") if problem.keys_wait else ("arbitrary" if problem.mask_shared else "parallel",)
    return pltpu.CompilerParams(dimension_semantics=("parallel", *among, "arbitrary"), vmem_limit_bytes=problem.memory)


def _tile_table(problem: FlashProblem, by_column: bool) -> np.ndarray:
    """The tiles that are not hidden by causality, in order: their rows, columns, and whether they begin and end a row.

    By column they begin and end a column. As a table, since the grid would visit hidden tiles, too. int32[4, tiles].
    """
    rows, columns = problem.tiles

    def is_seen(row: int, column: int) -> bool:
        # a mask's gradient has zeros where nobody looks
        return not problem.causal or problem.mask_trained or column * problem.columns < (row + 1) * problem.rows

    if by_column:
        # a column that nobody sees has a gradient, too: its last tile adds zeros
        order = [(i, j) for j in range(columns) for i in range(rows) if is_seen(i, j) or i == rows - 1]
    else:
        order = [(i, j) for i in range(rows) for j in range(columns) if is_seen(i, j)]
    lines = [column if by_column else row for row, column in order]
    first = [n == 0 or lines[n - 1] != line for n, line in enumerate(lines)]
    last = [*first[1:], True]
    return np.array([[i for i, _ in order], [j for _, j in order], first, last], np.int32)


class _Blocks:
    """Parts of the arrays that a step of the grid works on; steps count batch elements, groups of heads, and tiles."""

    def __init__(self, problem: FlashProblem, operands: Operands) -> None:
        self._problem = problem
        self._operands = operands

    def inputs(self) -> list[pl.BlockSpec]:
        features, width = self._operands.key.shape[-1], self._operands.value.shape[-1]
        return [self.queries(features), self.keys(features), self.keys(width)]

    def queries(self, width: int, tiles: int = 1) -> pl.BlockSpec:
        """A tile's queries, or all `tiles`."""
        shape = (1, self._problem.heads, tiles * self._problem.rows, width)
        return self._spec(shape, lambda b, h, t, table: (b, h, table[0, t] if tiles == 1 else 0, 0))

    def keys(self, width: int) -> pl.BlockSpec:
        """A tile's keys."""
        problem = self._problem
        shape = (1, problem.key_heads, problem.columns, width)
        return self._spec(shape, lambda b, h, t, table: (b, self._key_heads(h), table[1, t], 0))

    def of_keys(self, width: int) -> pl.BlockSpec:
        """Gradients of a tile's keys, or of all; for each head of the query where they are added up outside."""
        problem = self._problem
        if not problem.groups_sum:
            return self._spec((1, problem.heads, problem.columns, width), lambda b, h, t, table: (b, h, table[1, t], 0))
        if not problem.keys_wait:
            return self.keys(width)
        shape = (1, problem.key_heads, problem.kept_columns * problem.columns, width)
        return self._spec(shape, lambda b, h, t, table: (b, self._key_heads(h), 0, 0))

    def _key_heads(self, heads: jax.Array) -> jax.Array:
        """The group of heads of the key that a group of the query's looks at."""
        # not by `//`, whose sign JAX lowers by asking which TPU is here
        return lax.div(heads, jnp.int32(self._problem.steps_of_group))

    def per_query(self) -> pl.BlockSpec:
        """One number for each of a tile's queries."""
        return self._spec((1, self._problem.heads, 1, self._problem.rows), lambda b, h, t, table: (b, h, 0, table[0, t]))

    def masks(self) -> Iterator[pl.BlockSpec]:
        """A tile's mask, where there is one."""
        if self._operands.mask is None:
            return
        batch, heads, columns, rows = (size > 1 for size in self._operands.mask.shape)
        problem = self._problem
        yield self._spec(
            (1, problem.heads if heads else 1, problem.columns if columns else 1, problem.rows if rows else 1),
            lambda b, h, t, table: (
                b if batch else 0,
                h if heads else 0,
                table[1, t] if columns else 0,
                table[0, t] if rows else 0,
            ),
        )

    def of_mask(self) -> pl.BlockSpec:
        """A tile of a trained mask's gradient; all of a head's where batch elements share it."""
        problem, mask = self._problem, self._operands.mask
        assert mask is not None, "a trained mask is there"
        if problem.mask_shared:
            return self._spec((1, problem.heads, *mask.shape[2:]), lambda b, h, t, table: (0, h, 0, 0))
        shape = (1, problem.heads, problem.columns, problem.rows)
        return self._spec(shape, lambda b, h, t, table: (b, h, table[1, t], table[0, t]))

    def _spec(self, shape: tuple[int, ...], index: Callable[..., tuple[Any, ...]]) -> pl.BlockSpec:
        """A block, by batch element, group of heads, and tile; in the order that `_grid` has."""
        if self._problem.keys_wait:
            steps = self._problem.steps_of_group
            return pl.BlockSpec(shape, lambda b, k, h, t, table, *_: index(b, k * steps + h, t, table))
        if self._problem.mask_shared:
            return pl.BlockSpec(shape, lambda h, b, t, table, *_: index(b, h, t, table))
        return pl.BlockSpec(shape, lambda b, h, t, table, *_: index(b, h, t, table))


def _scalars(table: np.ndarray, operands: Operands) -> list[Any]:
    """Arrays in scalar memory, which say where a step of the grid is."""
    return [table, operands.seed, *([] if operands.seen is None else [operands.seen])]


def _arrays(operands: Operands) -> list[jax.Array]:
    given = (operands.query, operands.key, operands.value, operands.mask)
    return [array for array in given if array is not None]


def _named(name: str, problem: FlashProblem, operands: Operands) -> str:
    """A kernel's name says what costs time in it: preflight reads it."""
    masked = "_mask" if operands.mask is not None else ""
    dropped = "_dropout" if problem.dropout else ""
    return f"{name}{masked}{dropped}_{problem.rows}x{problem.columns}"


def _cost(problem: FlashProblem, operands: Operands, table: np.ndarray, products: int) -> pl.CostEstimate:
    """The figures that XLA gets: FLOPs of the tiles that are visited, an exponential for each score, bytes of the arrays."""
    batch, heads, _, features = operands.query.shape
    scores = batch * heads * table.shape[1] * problem.rows * problem.columns
    size = sum(array.size * array.dtype.itemsize for array in _arrays(operands))
    return pl.CostEstimate(flops=2 * products * scores * features, transcendentals=scores, bytes_accessed=2 * size)


def _forward_kernel(problem: FlashProblem, has_seen: bool, has_mask: bool, table: Any, seed: Any, *refs: Any) -> None:
    seen, (query, key, value, *others) = (refs[0], refs[1:]) if has_seen else (None, refs)
    mask = others.pop(0) if has_mask else None
    result, sums, peaks, totals, weighted = others
    tile = _tile(problem, table)

    @pl.when(tile.is_first)
    def _() -> None:
        peaks[...] = jnp.full_like(peaks, -jnp.inf)
        totals[...] = jnp.zeros_like(totals)
        weighted[...] = jnp.zeros_like(weighted)

    @_where_seen(problem, tile, seen)
    def _() -> None:
        for head in range(problem.heads):
            scores = _scores(problem, tile, query[0, head], key[0, head // problem.group], _of_head(mask, head))
            peak = jnp.maximum(peaks[head], scores.max(0, keepdims=True))
            # where a row has seen nothing yet, exp(-inf - 0) is the zero that exp(-inf - -inf) is not
            finite = jnp.where(peak == -jnp.inf, 0.0, peak)
            exponentials = jnp.exp(scores - finite)
            before = jnp.exp(peaks[head] - finite)
            peaks[head] = peak
            totals[head] = totals[head] * before + exponentials.sum(0, keepdims=True)
            kept = jnp.where(_kept(problem, tile, seed, head), exponentials, 0.0) if problem.dropout else exponentials
            values = _of_keys(problem, tile, value[0, head // problem.group])  # a probability of zero hides no nan
            weighted[head] = weighted[head] * before + _product(problem, values, kept, _COLUMNS_BY_COLUMNS)

    @pl.when(tile.is_last)
    def _() -> None:
        for head in range(problem.heads):
            looks = totals[head] > 0
            total = jnp.where(looks, totals[head], 1.0)
            share = jnp.where(looks, _rescale(problem) / total, 0.0)
            result[0, head] = (weighted[head] * share).T.astype(result.dtype)
            sums[0, head] = jnp.where(looks, peaks[head] + jnp.log(total), 0.0)


def _backward_kernel(
    problem: FlashProblem, has_seen: bool, has_mask: bool, of_query: bool, of_keys: bool, table: Any, seed: Any, *refs: Any
) -> None:
    seen, (query, key, value, cotangent, sums, means, *others) = (refs[0], refs[1:]) if has_seen else (None, refs)
    mask = others.pop(0) if has_mask else None
    # the mask's gradient, which needs no place to be added up in but its own
    of_mask: Any = others.pop(len(others) // 2) if problem.mask_trained else None
    outputs, scratch = others[: len(others) // 2], others[len(others) // 2 :]
    tile = _tile(problem, table)
    # in order of columns, every tile of the query is still being added to until the end
    begins, ends, slot = (tile.begins, tile.ends, tile.row) if of_keys else (tile.is_first, tile.is_last, 0)
    keys_begin, keys_end, column = tile.is_first, tile.is_last, 0
    if problem.keys_wait:
        part = pl.program_id(2)
        keys_begin, keys_end, column = begins & (part == 0), ends & (part == problem.steps_of_group - 1), tile.column

    @pl.when(begins)
    def _() -> None:
        for total in scratch[: int(of_query)]:
            total[...] = jnp.zeros_like(total)

    @pl.when(keys_begin)
    def _() -> None:
        for total in scratch[int(of_query) :]:
            total[...] = jnp.zeros_like(total)

    if problem.mask_shared:

        @pl.when((tile.batch == 0) & tile.begins)
        def _() -> None:
            of_mask[...] = jnp.zeros_like(of_mask)

    @_where_seen(problem, tile, seen)
    def _() -> None:
        for head in range(problem.heads):
            queries, of_result = (_of_queries(problem, tile, one[0, head], 0) for one in (query, cotangent))
            keys, values = (_of_keys(problem, tile, one[0, head // problem.group]) for one in (key, value))
            scores = _scores(problem, tile, queries, keys, _of_head(mask, head))
            probabilities = _of_queries(problem, tile, jnp.exp(scores - sums[0, head]), 1)
            change = _product(problem, values, of_result, _ROWS_BY_ROWS)
            dropped = probabilities
            if problem.dropout:
                kept = _kept(problem, tile, seed, head)
                dropped = jnp.where(kept, probabilities * _rescale(problem), 0.0)
                change = jnp.where(kept, change * _rescale(problem), 0.0)
            exact = probabilities * (change - _of_queries(problem, tile, means[0, head], 1))
            if problem.mask_shared:
                of_mask[0, head, _part(tile.column, problem.columns), _part(tile.row, problem.rows)] += exact
            elif problem.mask_trained:
                of_mask[0, head] = exact.astype(of_mask.dtype)
            of_scores = exact.astype(queries.dtype)
            if of_query:
                scratch[0][head, slot] += _product(problem, keys, of_scores, _COLUMNS_BY_COLUMNS)
            if of_keys:
                own = head // problem.group if problem.groups_sum else head
                scratch[-2][own, column] += _product(problem, of_scores, queries, _COLUMNS_BY_ROWS)
                scratch[-1][own, column] += _product(problem, dropped, of_result, _COLUMNS_BY_ROWS)

    @pl.when(keys_end)
    def _() -> None:
        for number in range(problem.kept_columns if of_keys else 0):
            columns = slice(number * problem.columns, (number + 1) * problem.columns)
            outputs[-2][0, :, columns] = (scratch[-2][:, number] * problem.scale).astype(outputs[-2].dtype)
            outputs[-1][0, :, columns] = scratch[-1][:, number].astype(outputs[-1].dtype)

    @pl.when(ends)
    def _() -> None:
        for head in range(problem.heads if of_query else 0):
            for row in range(scratch[0].shape[1]):
                rows = slice(row * problem.rows, (row + 1) * problem.rows)
                outputs[0][0, head, rows] = (scratch[0][head, row] * problem.scale).T.astype(outputs[0].dtype)


def _tile(problem: FlashProblem, table: Any) -> _Tile:
    batch, heads = pl.program_id(0), pl.program_id(1)
    if problem.mask_shared:
        batch, heads = heads, batch
    if problem.keys_wait:
        heads = heads * problem.steps_of_group + pl.program_id(2)
    axis = 3 if problem.keys_wait else 2
    step, steps = pl.program_id(axis), pl.num_programs(axis)
    row, column, is_first, is_last = (table[line, step] for line in range(4))
    return _Tile(batch, heads, row, column, is_first == 1, is_last == 1, step == 0, step == steps - 1)


def _where_seen(problem: FlashProblem, tile: _Tile, seen: Any) -> Callable[[Callable[[], None]], None]:
    """Do something unless the mask hides the whole tile: of causal, padded and packed sequences, up to half and more."""
    if seen is None:
        return lambda visit: visit()
    batch = tile.batch if seen.shape[0] > 1 else 0
    return pl.when(seen[batch, tile.column * problem.tiles[0] + tile.row] > 0)


def _part(number: jax.Array, size: int) -> Any:
    return pl.ds(pl.multiple_of(number * size, size), size)


def _of_head(mask: Any, head: int) -> jax.Array | None:
    return None if mask is None else mask[0, head if mask.shape[1] > 1 else 0]


def _of_queries(problem: FlashProblem, tile: _Tile, array: jax.Array, axis: int) -> jax.Array:
    """A tile's part of an array that has its queries along `axis`; zeros beyond the last query."""
    return _before(array, axis, problem.lengths[0], tile.row, problem.rows)


def _of_keys(problem: FlashProblem, tile: _Tile, array: jax.Array, beyond: float = 0.0) -> jax.Array:
    """A tile's part of an array that has its keys along the first axis; `beyond` the last key, that number."""
    return _before(array, 0, problem.lengths[1], tile.column, problem.columns, beyond)


def _before(array: jax.Array, axis: int, length: int, number: jax.Array, size: int, beyond: float = 0.0) -> jax.Array:
    if length % size == 0:
        return array
    # the vector unit of most chips selects 32 bits at a time only
    wide = array.astype(jnp.float32)
    is_there = lax.broadcasted_iota(jnp.int32, array.shape, axis) < length - number * size
    return jnp.where(is_there, wide, beyond).astype(array.dtype)


def _product(problem: FlashProblem, left: jax.Array, right: jax.Array, dimensions: Any) -> jax.Array:
    """A product of the narrower operand's dtype, summed in float32."""
    kind = jnp.bfloat16 if jnp.bfloat16 in (left.dtype, right.dtype) else jnp.float32
    precision = lax.Precision.HIGHEST if problem.exact else lax.Precision.DEFAULT
    return lax.dot_general(
        left.astype(kind), right.astype(kind), dimensions, precision=precision, preferred_element_type=jnp.float32
    )


def _scores(problem: FlashProblem, tile: _Tile, query: jax.Array, key: jax.Array, mask: jax.Array | None) -> jax.Array:
    """A tile of scores, [keys, queries], -inf where a query must not look."""
    scores = _product(problem, key, query, _ROWS_BY_ROWS)
    if problem.scale != 1:
        scores = scores * problem.scale
    if mask is not None and mask.dtype == jnp.int8:
        scores = jnp.where(mask.astype(jnp.int32) != 0, scores, -jnp.inf)
    elif mask is not None:
        scores = scores + mask.astype(jnp.float32)
    if problem.causal:
        ahead = lax.broadcasted_iota(jnp.int32, scores.shape, 0) - lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        scores = jnp.where(ahead <= tile.row * problem.rows - tile.column * problem.columns, scores, -jnp.inf)
    return _of_keys(problem, tile, scores, beyond=-jnp.inf)


def _kept(problem: FlashProblem, tile: _Tile, seed: Any, head: int) -> jax.Array:
    """The tile of the mask that `keep_mask_by_row` draws for the whole matrix of scores on all cores."""
    batch = seed[2] + tile.batch
    row = (batch * problem.all_heads + seed[3] + tile.heads * problem.heads + head) * problem.lengths[0]
    queries = row + tile.row * problem.rows + lax.broadcasted_iota(jnp.int32, (1, problem.rows), 1)
    words = (lax.full((1, problem.rows), seed[n], jnp.int32).astype(jnp.uint32) for n in (0, 1))
    halved = halves_suffice(1 - problem.dropout)
    count = problem.columns // 2 if halved else problem.columns
    keys = tile.column * count + lax.broadcasted_iota(jnp.int32, (count, 1), 0)
    queries, keys = hashed(queries.astype(jnp.uint32), *words), keys.astype(jnp.uint32)
    if not halved:
        return keeps(row_bits(queries, keys), 1 - problem.dropout)
    halves = row_halves(queries, keys)
    # whole registers beside each other, so that laying them out costs nothing
    places = (slice(start, start + PAIRED // 2) for start in range(0, count, PAIRED // 2))
    pairs = jnp.concatenate([half[place] for place in places for half in halves], axis=0)
    return upper_half_keeps(pairs, 1 - problem.dropout)


def _rescale(problem: FlashProblem) -> float:
    """The factor of the probabilities that stay; with a dropout of 1 none do."""
    return 0.0 if math.isclose(problem.dropout, 1) else 1 / (1 - problem.dropout)
