"""One recurrent layer in one direction: a loop over time, and its gradient as another one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ..lowering._column_sums import total
from ..lowering._context import current
from ..lowering._counted_scan import counted_scan

State = tuple[jax.Array, ...]

Forward = Callable[[jax.Array, jax.Array, State], tuple[State, State]]
"""From what the input and what the hidden state give to the gates, and the state before, to the state after and what is
kept."""

Backward = Callable[[State, State, State], tuple[State, State]]
"""From what was kept, the state before and the cotangents of the state after to those of what the input and what the hidden
state give to the gates (one array where they are equal), and of the state before where it did not go through the weights."""


@dataclass(frozen=True)
class Cell:
    """The part of one time that is between its products.

    Attributes:
        forward: one time.
        backward: its gradient, by hand: of what automatic differentiation would keep the gates alone suffice, and compilers
            would compute functions of the gates again for each use.
        sums: whether the gates are functions of the sum of what the input and the hidden state give.
    """

    forward: Forward
    backward: Backward
    sums: bool


def _lstm(from_input: jax.Array, from_hidden: jax.Array, state: State) -> tuple[State, State]:
    pre_enter, pre_forget, pre_candidate, pre_leave = jnp.split(from_input + from_hidden, 4, axis=-1)
    enter, forget, leave = (jax.nn.sigmoid(gate) for gate in (pre_enter, pre_forget, pre_leave))
    candidate = jnp.tanh(pre_candidate)
    memory = forget * state[1] + enter * candidate
    shown = jnp.tanh(memory)
    return (leave * shown, memory), (enter, forget, candidate, leave, shown)


def _lstm_gradient(kept: State, before: State, of_after: State) -> tuple[State, State]:
    enter, forget, candidate, leave, shown = kept
    of_memory = of_after[1] + of_after[0] * leave * (1 - shown * shown)
    of_gates = (
        of_memory * candidate * enter * (1 - enter),
        of_memory * before[1] * forget * (1 - forget),
        of_memory * enter * (1 - candidate * candidate),
        of_after[0] * shown * leave * (1 - leave),
    )
    return (jnp.concatenate(of_gates, axis=-1),), (jnp.zeros_like(before[0]), of_memory * forget)


def _gru(from_input: jax.Array, from_hidden: jax.Array, state: State) -> tuple[State, State]:
    reset_x, update_x, new_x = jnp.split(from_input, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(from_hidden, 3, axis=-1)
    reset, update = jax.nn.sigmoid(reset_x + reset_h), jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + reset * new_h)
    return (new + update * (state[0] - new),), (reset, update, new, new_h)


def _gru_gradient(kept: State, before: State, of_after: State) -> tuple[State, State]:
    reset, update, new, new_h = kept
    of_new = of_after[0] * (1 - update) * (1 - new * new)
    of_reset = of_new * new_h * reset * (1 - reset)
    of_update = of_after[0] * (before[0] - new) * update * (1 - update)
    from_input = jnp.concatenate([of_reset, of_update, of_new], axis=-1)
    from_hidden = jnp.concatenate([of_reset, of_update, of_new * reset], axis=-1)
    return (from_input, from_hidden), (of_after[0] * update,)


def _tanh(from_input: jax.Array, from_hidden: jax.Array, state: State) -> tuple[State, State]:
    after = jnp.tanh(from_input + from_hidden)
    return (after,), (after,)


def _tanh_gradient(kept: State, before: State, of_after: State) -> tuple[State, State]:
    return (of_after[0] * (1 - kept[0] * kept[0]),), (jnp.zeros_like(before[0]),)


def _relu(from_input: jax.Array, from_hidden: jax.Array, state: State) -> tuple[State, State]:
    after = jax.nn.relu(from_input + from_hidden)
    return (after,), (after > 0,)


def _relu_gradient(kept: State, before: State, of_after: State) -> tuple[State, State]:
    return (jnp.where(kept[0], of_after[0], jnp.zeros_like(of_after[0])),), (jnp.zeros_like(before[0]),)


CELLS = {
    "lstm": Cell(_lstm, _lstm_gradient, sums=True),
    "gru": Cell(_gru, _gru_gradient, sums=False),
    "rnn_tanh": Cell(_tanh, _tanh_gradient, sums=True),
    "rnn_relu": Cell(_relu, _relu_gradient, sums=True),
}


@functools.partial(jax.tree_util.register_dataclass, data_fields=["hidden", "bias", "projection"], meta_fields=[])
@dataclass(frozen=True)
class Weights:
    """Weights of the hidden state.

    Attributes:
        hidden: [gates, features].
        bias: [gates].
        projection: of the cell's results to the hidden state, [features, results].
    """

    hidden: jax.Array
    bias: jax.Array | None
    projection: jax.Array | None


Layer = Callable[[Cell, bool, jax.Array, State, Weights, jax.Array | None], tuple[jax.Array, State]]
"""From the cell, whether time runs backward, what the input gives to the gates [time, batch, gates], the initial state, the
weights and which rows go on [time, batch, 1] (None: all), to the hidden state at every time and the last state."""


def scanned(
    cell: Cell, reverse: bool, gates: jax.Array, initial: State, weights: Weights, live: jax.Array | None
) -> tuple[jax.Array, State]:
    """A layer as JAX's own scan, which has derivatives of every order."""

    def step(state: State, now: tuple[jax.Array, jax.Array | None]) -> tuple[State, jax.Array]:
        return _after(cell, _product, now[0], state, weights, now[1])[:2]

    final, outputs = jax.lax.scan(step, initial, (gates, live), reverse=reverse)
    return outputs, final


Product = Callable[[jax.Array, jax.Array], jax.Array]
"""From the hidden state [batch, features] and the weights [gates, features] to the hidden state's part of the gates."""


def _product(hidden: jax.Array, weights: jax.Array) -> jax.Array:
    return hidden @ weights.T


def _product_on_cpu(hidden: jax.Array, weights: jax.Array) -> jax.Array:
    # few rows by transposed weights take XLA's CPU three times as long as the weights by few columns (16 rows, 1,024 x 256:
    # 487 and 163 us); without the barrier it swaps them back
    return jax.lax.optimization_barrier(weights @ hidden.T).T


def _fastest_product() -> Product:
    """That of the platform whose program is made."""
    return _product_on_cpu if current().platform == "cpu" else _product


def looped(
    cell: Cell, reverse: bool, gates: jax.Array, initial: State, weights: Weights, live: jax.Array | None
) -> tuple[jax.Array, State]:
    """A layer whose gradient multiplies for the weights once, after its loop; it has first derivatives only.

    The derivative of a scan adds to the gradients of all weights at every time, in their own precision. Here the loop that
    runs back through time has only the product that the time before waits for.
    """
    return _looped(cell, reverse, gates, initial, weights, live)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _looped(
    cell: Cell, reverse: bool, gates: jax.Array, initial: State, weights: Weights, live: jax.Array | None
) -> tuple[jax.Array, State]:
    product = _fastest_product()

    def step(state: State, now: tuple[jax.Array, jax.Array | None]) -> tuple[State, jax.Array]:
        return _after(cell, product, now[0], state, weights, now[1])[:2]

    final, outputs = counted_scan(step, initial, (gates, live), gates.shape[0], reverse=reverse)
    return outputs, final


def _after(
    cell: Cell, product: Product, gates: jax.Array, state: State, weights: Weights, alive: jax.Array | None
) -> tuple[State, jax.Array, State]:
    """The state and the output of one time, and what the cell keeps for its gradient."""
    hidden = product(state[0].astype(weights.hidden.dtype), weights.hidden)
    if weights.bias is not None:
        hidden = hidden + weights.bias
    after, kept = cell.forward(gates, hidden, state)
    if weights.projection is not None:
        kept = (*kept, after[0])
        after = (after[0] @ weights.projection.T, *after[1:])
    new = tuple(a.astype(s.dtype) for a, s in zip(after, state, strict=True))
    if alive is None:
        return new, after[0], kept
    new = tuple(jnp.where(alive, a, s) for a, s in zip(new, state, strict=True))
    return new, jnp.where(alive, after[0], jnp.zeros((), after[0].dtype)), kept


_Left = tuple[Weights, State, State, jax.Array | None]
"""The weights, and for every time: what the cell kept, the states before, and which rows go on."""


def _forward(
    cell: Cell, reverse: bool, gates: jax.Array, initial: State, weights: Weights, live: jax.Array | None
) -> tuple[tuple[jax.Array, State], _Left]:
    product = _fastest_product()
    # where every row goes on, the hidden states are the outputs, and need not be kept twice
    first = 1 if live is None else 0

    def step(state: State, now: tuple[jax.Array, jax.Array | None]) -> Any:
        new, output, kept = _after(cell, product, now[0], state, weights, now[1])
        return new, (output, kept, state[first:])

    final, (outputs, kept, states) = counted_scan(step, initial, (gates, live), gates.shape[0], reverse=reverse)
    if first:
        start = initial[0][None].astype(outputs.dtype)
        shifted = [outputs[1:], start] if reverse else [start, outputs[:-1]]
        states = (jnp.concatenate(shifted).astype(initial[0].dtype), *states)
    return (outputs, final), (weights, kept, states, live)


def _backward(
    cell: Cell, reverse: bool, left: _Left, cotangents: tuple[jax.Array, State]
) -> tuple[jax.Array, State, Weights, None]:
    weights, kept, states, live = left
    dtype = weights.hidden.dtype

    def step(
        after: State, now: tuple[State, State, jax.Array | None, jax.Array]
    ) -> tuple[State, tuple[State, jax.Array | None]]:
        kept, states, alive, of_output = now
        of_new = (after[0] + of_output.astype(after[0].dtype), *after[1:])
        if alive is not None:
            of_new = tuple(jnp.where(alive, a, jnp.zeros((), a.dtype)) for a in of_new)
        projected, of_cell = None, of_new
        if weights.projection is not None:
            projected, kept = of_new[0], kept[:-1]
            of_cell = (projected.astype(dtype) @ weights.projection, *of_new[1:])
        of_gates, passed = cell.backward(kept, states, of_cell)
        of_gates = tuple(gate.astype(dtype) for gate in of_gates)
        through = (of_gates[-1] @ weights.hidden).astype(after[0].dtype)
        before = tuple(b.astype(a.dtype) for a, b in zip(after, (through + passed[0], *passed[1:]), strict=True))
        if alive is not None:
            before = tuple(jnp.where(alive, b, a) for a, b in zip(after, before, strict=True))
        return before, (of_gates, projected)

    of_outputs, of_final = cotangents
    rows = kept, states, live, of_outputs
    of_initial, (of_gates, of_projected) = counted_scan(step, of_final, rows, of_outputs.shape[0], reverse=not reverse)
    of_weights = Weights(
        _over_rows(of_gates[-1], states[0].astype(dtype)),
        None if weights.bias is None else total(of_gates[-1], (0, 1)),
        None if of_projected is None else _over_rows(of_projected.astype(dtype), kept[-1].astype(dtype)),
    )
    return of_gates[0], of_initial, of_weights, None


def _over_rows(left: jax.Array, right: jax.Array) -> jax.Array:
    """The sum over times and rows of a batch of the products of two arrays' features: [left's, right's]."""
    return jax.lax.dot_general(left, right, (((0, 1), (0, 1)), ((), ())))


_looped.defvjp(_forward, _backward)
