"""Products of 16 bit numbers on a GPU, whose rows begin where its matrix units can load them.

A row of 50,257 logits (GPT-2's vocabulary) begins at an odd address: cuBLAS has no fast kernel for it, and XLA takes one of
its own that reaches a third of the speed. Filled up to a multiple of eight numbers, 16 bytes, the product is cuBLAS's
(https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication, "Tensor Core Requirements"). What
fills up is written where the operand is rounded to 16 bits, and what is cut off where the result is read. Of GPT-2's three
products with that size this helps the two gradients (2.8 and 2.1 ms -> 0.8 on an H200); for the logits themselves XLA moves the
cut in front of the product again.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from ._context import current

_TILE = 8
# of multiplications; a smaller product takes no longer than what fills it up
_LARGE = 1 << 32


def in_whole_tiles(product: Callable[..., jax.Array], x: jax.Array, y: jax.Array, *of_columns: jax.Array) -> jax.Array:
    """The result of `product(x, y, *of_columns)`.

    Args:
        product: gives `x @ y`, with something for each column, rounded to what is kept in memory.
        x: a matrix, or anything else that `jnp.matmul` takes.
        y: the same.
        of_columns: numbers for each column.
    """
    if current().platform != "gpu" or not x.ndim == y.ndim == 2 or x.dtype.itemsize != 2 or y.dtype.itemsize != 2:
        return product(x, y, *of_columns)
    (rows, inner), columns = x.shape, y.shape[1]
    if rows * inner * columns < _LARGE or all(size % _TILE == 0 for size in (rows, inner, columns)):
        return product(x, y, *of_columns)
    return product(*map(_filled, (x, y, *of_columns)))[:rows, :columns]


def _filled(x: jax.Array) -> jax.Array:
    return jnp.pad(x, [(0, -size % _TILE) for size in x.shape])
