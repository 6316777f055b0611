"""Gradients of lowerings by JAX, in PyTorch's conventions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike


def pullback(function: Callable[..., jax.Array], primals: Sequence[jax.Array], grad: jax.Array) -> tuple[jax.Array, ...]:
    """The gradients of `function` at `primals`; XLA drops the part of the forward that they do not need.

    PyTorch's gradient of a complex tensor is the conjugate of JAX's cotangent.
    """
    out, pull = jax.vjp(function, *primals)
    grads = pull(conjugate(grad.astype(out.dtype)))
    return tuple(conjugate(g) for g in grads)


def wide(x: ArrayLike) -> jax.Array:
    """`x` in the dtype that PyTorch accumulates in: half-width floats become float32."""
    x = jnp.asarray(x)
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def index32(index: jax.Array, size: int) -> jax.Array:
    """An index array in int32 where the indexed dimension fits: 64-bit integers are emulated on TPU."""
    if index.dtype in (jnp.int64, jnp.uint64) and size < 2**31:
        return index.astype(jnp.int32)
    return index


def conjugate(x: jax.Array) -> jax.Array:
    """PyTorch's gradient of a complex tensor is the conjugate of JAX's cotangent; real arrays stay."""
    return jnp.conj(x) if jnp.iscomplexobj(x) else x
