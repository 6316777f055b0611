"""A product whose operands keep their narrow dtype, forwards and backwards, and whose sums are wide."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp


def mixed_product(equation: str, left: jax.Array, right: jax.Array) -> jax.Array:
    """`jnp.einsum` of operands in `right`'s dtype, accumulated and returned in float32 at least.

    Differentiated by JAX, such a product would multiply its float32 cotangent by a narrow operand. Here the cotangent is
    rounded to the operands' dtype before, as in flash attention's backward (https://arxiv.org/abs/2205.14135, algorithm 4).

    Args:
        equation: of two operands and named dimensions, each with leading "..."; no index is in one operand alone.
        left: of any dtype; rounded to `right`'s.
        right: the dtype that is multiplied.
    """
    product: Any = _product
    return product(equation, left, right)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(equation: str, left: jax.Array, right: jax.Array) -> jax.Array:
    wide = jnp.promote_types(right.dtype, jnp.float32)
    return jnp.einsum(equation, left.astype(right.dtype), right, preferred_element_type=wide)


def _forward(equation: str, left: jax.Array, right: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    # an empty array says which dtype the left operand had
    return mixed_product(equation, left, right), (left.astype(right.dtype), right, jnp.empty((0,), left.dtype))


def _backward(equation: str, kept: tuple[jax.Array, ...], cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    left, right, kind = kept
    inputs, result = equation.split("->")
    one, other = inputs.split(",")
    of_left = mixed_product(f"{result},{other}->{one}", cotangent, right)
    of_right = mixed_product(f"{result},{one}->{other}", cotangent, left)
    return _summed_to(of_left, left.shape).astype(kind.dtype), _summed_to(of_right, right.shape).astype(right.dtype)


def _summed_to(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The cotangent of what was broadcast from a shape."""
    x = x.sum(range(x.ndim - len(shape)))
    stretched = [axis for axis, size in enumerate(shape) if size == 1 and x.shape[axis] != 1]
    return x.sum(stretched, keepdims=True) if stretched else x


_product.defvjp(_forward, _backward)
