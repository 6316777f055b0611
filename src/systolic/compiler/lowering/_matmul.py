"""Products of matrices and vectors. Their precision is JAX's default one, which the trainer sets."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ...runtime import jax_dtype
from ._dtype import announced_dtype, as_array, compute_dtype
from ._operand import Number
from ._rows import product_of_rows
from ._table import lowers
from ._whole_tiles import in_whole_tiles

aten = torch.ops.aten


@lowers(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default)
def _product(x: jax.Array, y: jax.Array) -> jax.Array:
    found = product_of_rows(x, y)
    if found is not None:
        return found
    # half precision is summed in float32, over the devices as well, and rounded once
    dtype = jnp.result_type(x.dtype, y.dtype)
    wide = compute_dtype(dtype)
    return in_whole_tiles(lambda x, y: jnp.matmul(x, y, preferred_element_type=wide).astype(dtype), x, y)


@lowers(aten.vdot.default)
def _vdot(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(jnp.conj(x), y)


@lowers(aten.mm.dtype, aten.bmm.dtype)
def _product_as(x: jax.Array, y: jax.Array, out_dtype: torch.dtype) -> jax.Array:
    return jnp.matmul(x, y, preferred_element_type=jax_dtype(out_dtype))


@lowers(aten._int_mm.default)
def _int_mm(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, preferred_element_type=jnp.int32)


@lowers(aten.matmul.default)
def matmul(x: jax.Array, y: jax.Array) -> jax.Array:
    """`x @ y`; a batch of rows times one matrix is one product of two matrices, which XLA tiles best."""
    if x.ndim > 2 and y.ndim == 2:
        return jnp.matmul(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[-1])
    return jnp.matmul(x, y)


@lowers(aten.linear.default)
def _linear(x: jax.Array, weight: jax.Array, bias: jax.Array | None = None) -> jax.Array:
    rows = x.reshape(-1, x.shape[-1])
    if weight.ndim == 1:
        out = jnp.matmul(x, weight)
        return out if bias is None else out + bias
    out = jnp.matmul(rows, weight.T) if bias is None else _blend(bias, rows, weight.T, 1, 1)
    return out.astype(x.dtype).reshape(*x.shape[:-1], weight.shape[0])


def _blend(x: jax.Array, left: jax.Array, right: jax.Array, beta: Number, alpha: Number) -> jax.Array:
    """`beta * x + alpha * (left @ right)`, rounded once as in PyTorch's kernels."""
    dtype = compute_dtype(jnp.result_type(left.dtype, right.dtype))
    product = jnp.matmul(left, right, preferred_element_type=dtype)
    if alpha != 1:
        product = product * as_array(alpha, dtype)
    # with beta = 0 whatever is in x, nan included, has no part in the result
    if beta == 0:
        return product
    x = x.astype(dtype)
    return (x if beta == 1 else x * as_array(beta, dtype)) + product


@lowers(aten.addmm.default, aten.addmv.default, aten.baddbmm.default)
def _add_product(x: jax.Array, left: jax.Array, right: jax.Array, beta: Number = 1, alpha: Number = 1) -> jax.Array:
    if beta != 1 or alpha != 1 or x.ndim != 1:
        return _blend(x, left, right, beta, alpha)
    found = product_of_rows(left, right, x, first=1)
    if found is not None:
        return found
    dtype = jnp.result_type(left.dtype, right.dtype)
    return in_whole_tiles(lambda left, right, x: _blend(x, left, right, 1, 1).astype(dtype), left, right, x)


@lowers(aten.addmm.dtype, aten.baddbmm.dtype)
def _add_product_as(
    x: jax.Array, left: jax.Array, right: jax.Array, out_dtype: torch.dtype, beta: Number = 1, alpha: Number = 1
) -> jax.Array:
    return _blend(x, left, right, beta, alpha)


@lowers(aten._addmm_activation.default)
def _addmm_activation(
    x: jax.Array, left: jax.Array, right: jax.Array, beta: Number = 1, alpha: Number = 1, use_gelu: bool = False
) -> jax.Array:
    out = _blend(x, left, right, beta, alpha)
    return jax.nn.gelu(out, approximate=False) if use_gelu else jnp.maximum(out, 0)


@lowers(aten.addbmm.default)
def _addbmm(x: jax.Array, left: jax.Array, right: jax.Array, beta: Number = 1, alpha: Number = 1) -> jax.Array:
    rows = jnp.moveaxis(left, 0, 1).reshape(left.shape[1], -1)
    return _blend(x, rows, right.reshape(-1, right.shape[-1]), beta, alpha)


@lowers(aten.addr.default)
def _addr(x: jax.Array, left: jax.Array, right: jax.Array, beta: Number = 1, alpha: Number = 1) -> jax.Array:
    dtype = compute_dtype(announced_dtype())
    x, left, right = (as_array(v, dtype) for v in (x, left, right))
    outer = left[:, None] * right * as_array(alpha, dtype)
    return outer if beta == 0 else x * as_array(beta, dtype) + outer


@lowers(aten.outer.default, aten.ger.default)
def _outer(x: jax.Array, y: jax.Array) -> jax.Array:
    return x[:, None] * y
