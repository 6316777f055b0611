"""Tensors made from nothing but numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import DTypeLike

from ._dtype import announced_dtype, announced_shape, as_array, cast, compute_dtype
from ._operand import Operand
from ._table import lowers

aten = torch.ops.aten


@lowers(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.empty_permuted.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
    aten._efficientzerotensor.default,
    aten._new_zeros_with_same_feature_meta.default,
    aten.zero.default,
)
def _zeros(*_arguments: object, **_options: object) -> jax.Array:
    return jnp.zeros(announced_shape(), announced_dtype())


@lowers(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def _ones(*_arguments: object, **_options: object) -> jax.Array:
    return jnp.ones(announced_shape(), announced_dtype())


def _filled(value: Operand) -> jax.Array:
    return jnp.broadcast_to(as_array(value, announced_dtype()), announced_shape())


@lowers(aten.full.default, aten.full_like.default, aten.fill.Scalar, aten.fill.Tensor)
def _full(_like: object, fill_value: Operand, **_options: object) -> jax.Array:
    return _filled(fill_value)


@lowers(aten.new_full.default)
def _new_full(_like: object, _size: object, fill_value: Operand, **_options: object) -> jax.Array:
    return _filled(fill_value)


@lowers(aten.scalar_tensor.default)
def _scalar_tensor(value: Operand, **_options: object) -> jax.Array:
    return _filled(value)


@lowers(aten.copy.default)
def _copy(_self: jax.Array, source: jax.Array, non_blocking: bool = False) -> jax.Array:
    return _filled(source)


@lowers(aten.arange.default)
def _arange(end: float, **_options: object) -> jax.Array:
    return _stepped(0, 1)


@lowers(aten.arange.start, aten.arange.start_step, aten.range.default, aten.range.step)
def _arange_from(start: float, end: float, step: float = 1, **_options: object) -> jax.Array:
    return _stepped(start, step)


def _stepped(start: float, step: float) -> jax.Array:
    dtype, (count,) = announced_dtype(), announced_shape()
    if not all(float(number).is_integer() for number in (start, step)):
        # PyTorch steps in double precision: done here, as a constant of the program
        return jnp.asarray((start + step * np.arange(count, dtype=np.float64)).astype(dtype))
    exact = compute_dtype(dtype)
    return as_array(start, exact) + jax.lax.iota(exact, count) * as_array(step, exact)


@lowers(
    aten.linspace.default,
    aten.linspace.Scalar_Tensor,
    aten.linspace.Tensor_Scalar,
    aten.linspace.Tensor_Tensor,
)
def _linspace(start: Operand, end: Operand, steps: int, **_options: object) -> jax.Array:
    return cast(_evenly_spaced(start, end, steps, announced_dtype()), announced_dtype())


def _evenly_spaced(start: Operand, end: Operand, steps: int, dtype: DTypeLike) -> jax.Array:
    exact = compute_dtype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else jnp.dtype(jnp.float32)
    low, high = as_array(start, exact), as_array(end, exact)
    step = (high - low) / max(steps - 1, 1)
    index = jax.lax.iota(jnp.int32, steps)
    # the second half counts from the end, which makes the ends exact
    if steps < 2:
        return low[None][:steps]
    return jnp.where(index < steps // 2, low + step * index, high - step * (steps - 1 - index))


@lowers(
    aten.logspace.default,
    aten.logspace.Scalar_Tensor,
    aten.logspace.Tensor_Scalar,
    aten.logspace.Tensor_Tensor,
)
def _logspace(start: Operand, end: Operand, steps: int, base: float = 10.0, **_options: object) -> jax.Array:
    exponents = _evenly_spaced(start, end, steps, announced_dtype())
    return cast(jnp.power(jnp.asarray(base, exponents.dtype), exponents), announced_dtype())


@lowers(aten.eye.default, aten.eye.m)
def _eye(*_size: int, **_options: object) -> jax.Array:
    return jnp.eye(*announced_shape(), dtype=announced_dtype())


@lowers(aten.tril_indices.default)
def _tril_indices(row: int, col: int, offset: int = 0, **_options: object) -> jax.Array:
    return _indices(np.tri(row, col, offset, dtype=bool))


@lowers(aten.triu_indices.default)
def _triu_indices(row: int, col: int, offset: int = 0, **_options: object) -> jax.Array:
    return _indices(~np.tri(row, col, offset - 1, dtype=bool))


def _indices(mask: np.ndarray) -> jax.Array:
    return jnp.asarray(np.stack(np.nonzero(mask)).astype(announced_dtype()))
