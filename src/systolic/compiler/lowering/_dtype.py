"""Type promotion: which dtype PyTorch computes in, for JAX operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.typing import DTypeLike

from ...runtime import jax_dtype, torch_dtype
from ._context import current
from ._operand import Number, Operand


def announced_dtype() -> Any:
    """The dtype of the (first) tensor that PyTorch announced for the op being lowered."""
    output = current().output
    while isinstance(output, (tuple, list)):
        output = next(o for o in output if o is not None)
    return jax_dtype(output.dtype)


def announced_shape() -> tuple[int, ...]:
    """The shape of the tensor that PyTorch announced for the op being lowered."""
    return tuple(current().output.shape)


def compute_dtype(dtype: DTypeLike) -> Any:
    """The dtype that PyTorch computes in for values of `dtype`: half precision is widened to float32."""
    dtype = jnp.dtype(dtype)
    return jnp.dtype(jnp.float32) if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 else dtype


def result_dtype(*operands: Operand) -> Any:
    """The dtype of a pointwise op, by PyTorch's rules: tensors outrank 0-dim tensors, which outrank numbers."""
    dimensioned, scalars, numbers = None, None, None
    for operand in operands:
        if not isinstance(operand, jax.Array):
            numbers = _join(numbers, _number_dtype(operand))
        elif operand.ndim:
            dimensioned = _join(dimensioned, torch_dtype(operand.dtype))
        else:
            scalars = _join(scalars, torch_dtype(operand.dtype))
    dtype = _outrank(dimensioned, _outrank(scalars, numbers))
    assert dtype is not None
    return jax_dtype(dtype)


def promoted(*operands: Operand, floating: bool = False, exact: bool = False) -> list[jax.Array]:
    """Operands as arrays of the dtype that PyTorch computes in.

    Args:
        operands: arrays and numbers of one pointwise op.
        floating: whether integers become floats of PyTorch's default dtype, as in a true division.
        exact: whether numbers keep their precision next to bfloat16 tensors. PyTorch's kernels for the four basic
            operations do this, all others round numbers to the dtype of the result first.
    """
    dtype = result_dtype(*operands)
    if floating and not jnp.issubdtype(dtype, jnp.inexact):
        dtype = _announced_float()
    wide = compute_dtype(dtype)
    return [as_array(operand if exact else as_array(operand, dtype), wide) for operand in operands]


def _announced_float() -> Any:
    """The dtype that integers become: float32, or float64 where that is PyTorch's default dtype."""
    wide = announced_dtype() in (jnp.float64, jnp.complex128)
    return jnp.dtype(jnp.float64 if wide else jnp.float32)


def as_array(value: Operand, dtype: DTypeLike) -> jax.Array:
    """An array of `dtype` from an array or a number; numbers wrap around in integers as they do in PyTorch."""
    if isinstance(value, jax.Array):
        return cast(value, dtype)
    return jnp.asarray(np.asarray(value).astype(dtype))


def cast(x: jax.Array, dtype: DTypeLike) -> jax.Array:
    """`tensor.to(dtype)` without the warning on complex inputs."""
    dtype = jnp.dtype(dtype)
    if x.dtype == dtype and not x.weak_type:
        return x
    if jnp.iscomplexobj(x) and dtype != jnp.bool_ and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = x.real
    if dtype == jnp.uint8 and jnp.issubdtype(x.dtype, jnp.floating):
        # PyTorch wraps negative values around, XLA would saturate them at zero
        x = x.astype(jnp.int64)
    return x.astype(dtype)


def widened(x: jax.Array) -> jax.Array:
    """`x` in the floating dtype that PyTorch computes a transcendental function of it in."""
    return promoted(x, floating=True)[0]


def float_unary(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """A lowering of a unary op that gives floats for integers."""
    return lambda x: function(widened(x))


def unary(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """A lowering of a unary op that keeps integers."""
    return lambda x: function(promoted(x)[0])


def float_binary(function: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[Any, Any], jax.Array]:
    """A lowering of a binary op that gives floats for integers."""
    return lambda x, y: function(*promoted(x, y, floating=True))


def binary(function: Callable[[jax.Array, jax.Array], jax.Array]) -> Callable[[Any, Any], jax.Array]:
    """A lowering of a binary op that keeps integers."""
    return lambda x, y: function(*promoted(x, y))


def normal_axes(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions as non-negative numbers; None and an empty list stand for all of them."""
    if dims is None:
        return tuple(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    if not listed:
        return tuple(range(rank))
    return tuple(normal_axis(d, rank) for d in listed) if rank else ()


def normal_axis(dim: int, rank: int) -> int:
    """`dim` as a non-negative number."""
    return dim + rank if dim < 0 else dim


def _number_dtype(number: Number | np.generic) -> torch.dtype:
    if isinstance(number, (bool, np.bool_)):
        return torch.bool
    if isinstance(number, (int, np.integer)):
        return torch.int64
    return torch.complex64 if isinstance(number, complex) else torch.float32


def _join(left: torch.dtype | None, right: torch.dtype | None) -> torch.dtype | None:
    if left is None or right is None:
        return left or right
    return torch.promote_types(left, right)


def _outrank(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    if higher == torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher
