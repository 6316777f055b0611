"""`jax.lax.scan` without gradients, with a counter that a TPU has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Body = Callable[[Any, Any], tuple[Any, Any]]


def counted_scan(body: Body, initial: Any, rows: Any, size: int, *, reverse: bool = False) -> tuple[Any, Any]:
    """The value that the last turn gives on, and the outputs of all turns, stacked.

    Like `jax.lax.scan`, but for the counter. 64-bit types are switched on; of a counter of 64 bits, which a TPU has not, its
    compiler does not find out how often the loop runs, and fills the stacked outputs with zeros first. `jax.lax.scan` chooses
    the counter's type where it is lowered, so nothing around a call of it can change that.

    Args:
        body: from what the turn before gives on and this turn's rows to what goes on and this turn's outputs: pytrees of
            arrays. It is traced twice.
        initial: what the first turn takes.
        rows: a pytree of arrays with one row for every turn.
        size: how many turns there are.
        reverse: whether the last row is the first turn's.
    """

    def row(at: Any) -> Any:
        return jax.tree.map(
            lambda array: jax.lax.dynamic_index_in_dim(array, at, keepdims=False, allow_negative_indices=False), rows
        )

    def step(state: tuple[jax.Array, Any, Any]) -> tuple[jax.Array, Any, Any]:
        turn, carry, stacks = state
        at = jnp.int32(size - 1) - turn if reverse else turn
        carry, outputs = body(carry, row(at))
        stacks = jax.tree.map(
            lambda stack, output: jax.lax.dynamic_update_index_in_dim(stack, output, at, 0, allow_negative_indices=False),
            stacks,
            outputs,
        )
        return turn + jnp.int32(1), carry, stacks

    _, shapes = jax.eval_shape(lambda carry: body(carry, row(0)), initial)
    stacks = jax.tree.map(lambda one: jnp.zeros((size, *one.shape), one.dtype), shapes)
    _, final, stacked = jax.lax.while_loop(lambda state: state[0] < size, step, (jnp.int32(0), initial, stacks))
    return final, stacked
