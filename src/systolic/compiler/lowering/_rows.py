"""Products of rows that PyTorch laid side by side, with the dimensions that the rows had before, on TPU.

Around every product of a linear layer PyTorch's graphs make [batch, length, features] a matrix. XLA fuses a product with
what comes before and after it (an activation, a dropout, the sums of a layer norm's gradient) where the dimensions are
the same on both sides; where a view lies between, it writes intermediate results to memory, in float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch
from torch import fx

from ._context import current
from ._dtype import compute_dtype

aten = torch.ops.aten

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)


def product_of_rows(x: jax.Array, y: jax.Array, bias: jax.Array | None = None, *, first: int = 0) -> jax.Array | None:
    """`x @ y + bias`, summed in float32 and rounded once; None where no view made a matrix of more dimensions.

    Args:
        x: a matrix, argument number `first` of the op being lowered.
        y: a matrix, the argument after it.
        bias: a value for every column.
        first: says where the arguments come from.
    """
    if current().platform != "tpu" or not x.ndim == y.ndim == 2:
        return None
    dtype = jnp.result_type(x.dtype, y.dtype)
    wide = compute_dtype(dtype)
    left, right = current().source(first), current().source(first + 1)
    rows = _rows(left)
    if rows:
        out = jnp.matmul(x.reshape(*rows, -1), y, preferred_element_type=wide)
        out = out if bias is None else out + bias.astype(wide)
        return out.astype(dtype).reshape(-1, y.shape[1])
    rows = _rows(right)
    # a weight's gradient: the sum runs over all rows
    if rows and bias is None and _is_transpose(left) and _rows(_operand(left)) == rows:
        over_rows = (((0, 1), (0, 1)), ((), ()))
        columns = x.T.reshape(*rows, -1)
        return jax.lax.dot_general(columns, y.reshape(*rows, -1), over_rows, preferred_element_type=wide).astype(dtype)
    return None


def _rows(node: fx.Node | None) -> tuple[int, ...]:
    """[batch, length] where a matrix [batch * length, features] was [batch, length, features]; empty if it was not."""
    source = _operand(node)
    if node is None or source is None or node.target not in _VIEWS or node.meta["val"].dim() != 2:
        return ()
    shape = tuple(source.meta["val"].shape)
    return shape[:2] if len(shape) == 3 and shape[2] == node.meta["val"].shape[1] else ()


def _is_transpose(node: fx.Node | None) -> bool:
    return node is not None and node.target is aten.t.default


def _operand(node: fx.Node | None) -> fx.Node | None:
    """The node that is the first argument of another one."""
    source = node.args[0] if node is not None and node.args else None
    return source if isinstance(source, fx.Node) else None
