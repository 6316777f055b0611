"""Products of groups of rows, each group with a matrix of its own: what mixtures of experts are made of."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._dtype import compute_dtype
from ._table import lowers, lowers_named

aten = torch.ops.aten

# groups of rows of both sides, multiplied over the rows
_OVER_ROWS = jax.lax.RaggedDotDimensionNumbers(
    dot_dimension_numbers=(((0,), (0,)), ((), ())), lhs_ragged_dimensions=[0], rhs_group_dimensions=[]
)


def _sizes(ends: jax.Array) -> jax.Array:
    """How many rows each group has, from where each ends."""
    return jnp.diff(ends.astype(jnp.int32), prepend=jnp.zeros(1, jnp.int32))


def _of_rows(x: jax.Array, weight: jax.Array, ends: jax.Array) -> jax.Array:
    """[rows, in] by [groups, in, out] is [rows, out]; rows behind the last group are zero."""
    dtype = jnp.result_type(x.dtype, weight.dtype)
    # summed in float32 and rounded once, as in a plain product
    return jax.lax.ragged_dot(x, weight, _sizes(ends), preferred_element_type=compute_dtype(dtype)).astype(dtype)


def _over_rows(x: jax.Array, y: jax.Array, ends: jax.Array) -> jax.Array:
    """[rows, in] by [rows, out] is [groups, in, out]: each group's sum over its rows."""
    dtype = jnp.result_type(x.dtype, y.dtype)
    wide = compute_dtype(dtype)
    return jax.lax.ragged_dot_general(x, y, _sizes(ends), _OVER_ROWS, preferred_element_type=wide).astype(dtype)


@lowers(aten._grouped_mm.default)
def _grouped_mm(
    x: jax.Array,
    y: jax.Array,
    offs: jax.Array | None = None,
    bias: jax.Array | None = None,
    out_dtype: torch.dtype | None = None,
) -> jax.Array:
    assert bias is None, "PyTorch refuses it"
    if offs is None:
        return jnp.matmul(x, y, preferred_element_type=compute_dtype(x.dtype))
    if x.ndim == y.ndim == 2:
        return _over_rows(x.T, y, offs)
    if x.ndim == 3:  # groups of columns
        return _of_rows(y.T, x.mT, offs).T
    return _of_rows(x, y, offs)


@lowers_named("transformers::grouped_mm_fallback")
def _hub_grouped_mm(x: jax.Array, weight: jax.Array, offs: jax.Array) -> jax.Array:
    return _of_rows(x, weight, offs)


@lowers_named("transformers::grouped_mm_fallback_backward")
def _hub_grouped_mm_backward(x: jax.Array, weight: jax.Array, offs: jax.Array, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _of_rows(grad, weight.mT, offs), _over_rows(x, grad, offs)
