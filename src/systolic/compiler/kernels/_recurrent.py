"""LSTM, GRU and RNN as one op each, lowered to one scan over time per layer and direction."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import torch
from torch import nn

from .._capture_thread import replaced
from .._errors import CaptureError, user_line_of
from ._jax_op import jax_op
from ._keys import bernoulli, next_key

State = tuple[jax.Array, ...]
Cell = Callable[[jax.Array, jax.Array, State], State]


def _lstm_cell(from_input: jax.Array, from_hidden: jax.Array, state: State) -> State:
    enter, forget, candidate, leave = jnp.split(from_input + from_hidden, 4, axis=-1)
    memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(candidate)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


def _gru_cell(from_input: jax.Array, from_hidden: jax.Array, state: State) -> State:
    reset_x, update_x, new_x = jnp.split(from_input, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(from_hidden, 3, axis=-1)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (new + jax.nn.sigmoid(update_x + update_h) * (state[0] - new),)


def _tanh_cell(from_input: jax.Array, from_hidden: jax.Array, state: State) -> State:
    return (jnp.tanh(from_input + from_hidden),)


def _relu_cell(from_input: jax.Array, from_hidden: jax.Array, state: State) -> State:
    return (jax.nn.relu(from_input + from_hidden),)


_CELLS: dict[str, Cell] = {"lstm": _lstm_cell, "gru": _gru_cell, "rnn_tanh": _tanh_cell, "rnn_relu": _relu_cell}
KINDS = tuple(_CELLS)
"""The names of PyTorch's internal functions that are replaced by `network`."""


def recurrent(
    x: jax.Array,
    initial: State,
    weights: Sequence[jax.Array],
    draw: jax.Array | None,
    lengths: jax.Array | None,
    *,
    kind: str,
    layers: int,
    directions: int,
    has_biases: bool,
    dropout: float,
    batch_first: bool,
) -> State:
    """A stack of recurrent layers.

    Args:
        x: (time, batch, features), or (batch, time, features) with `batch_first`.
        initial: hidden state (and memory): each (layers * directions, batch, features).
        weights: by layer and direction: input, hidden, then biases and the projection where there are any.
        draw: random key data for dropout between the layers; None for no dropout.
        lengths: how many times each row has; None for all. What lies behind has no part in any result.
        kind: "lstm", "gru", "rnn_tanh" or "rnn_relu".
        layers: how many layers lie above each other.
        directions: 2 when each layer also runs backward in time.
        has_biases: whether there are biases.
        dropout: share of a layer's results that the next layer does not see.
        batch_first: see `x`.

    Returns:
        The last layer's results for every time, and the final states as in `initial`.
    """
    runs = layers * directions
    per_run = len(weights) // runs
    x = jnp.swapaxes(x, 0, 1) if batch_first else x
    live = None if lengths is None else (jnp.arange(x.shape[0])[:, None] < lengths)[..., None]
    if live is not None:
        x = jnp.where(live, x, jnp.zeros((), x.dtype))  # padding may be anything, also not finite
    final: list[State] = []
    for layer in range(layers):
        if layer and draw is not None:
            kept = bernoulli(draw, 1 - dropout, x.shape, layer)
            x = x * kept.astype(x.dtype) * (0.0 if dropout == 1 else 1 / (1 - dropout))
        outputs = []
        for direction in range(directions):
            run = layer * directions + direction
            own = weights[run * per_run : (run + 1) * per_run]
            state = tuple(s[run] for s in initial)
            output, state = _run(_CELLS[kind], x, state, own, has_biases, live, reverse=direction == 1)
            outputs.append(output)
            final.append(state)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
    return jnp.swapaxes(x, 0, 1) if batch_first else x, *(jnp.stack(states) for states in zip(*final, strict=True))


def _run(
    cell: Cell,
    x: jax.Array,
    state: State,
    weights: Sequence[jax.Array],
    has_biases: bool,
    live: jax.Array | None,
    *,
    reverse: bool,
) -> tuple[jax.Array, State]:
    """One layer in one direction: the hidden state at every time, and the last state."""
    from_input, from_hidden = weights[:2]
    bias = weights[2:4] if has_biases else (jnp.zeros((), from_input.dtype),) * 2
    projection = weights[-1] if len(weights) % 2 else None
    time, batch, features = x.shape
    # one product for all times, on rank 2, which is what matrix units like; only the hidden part has to wait
    flat = x.reshape(time * batch, features).astype(from_input.dtype) @ from_input.T + bias[0]

    def step(state: State, now: tuple[jax.Array, jax.Array | None]) -> tuple[State, jax.Array]:
        gates, alive = now
        after = cell(gates, state[0].astype(from_hidden.dtype) @ from_hidden.T + bias[1], state)
        if projection is not None:
            after = (after[0] @ projection.T, *after[1:])
        new = tuple(a.astype(s.dtype) for a, s in zip(after, state, strict=True))
        if alive is None:
            return new, after[0]
        kept = tuple(jnp.where(alive, a, s) for a, s in zip(new, state, strict=True))
        return kept, jnp.where(alive, after[0], jnp.zeros((), after[0].dtype))

    state, outputs = jax.lax.scan(step, state, (flat.reshape(time, batch, -1), live), reverse=reverse)
    return outputs, state


_recurrent = jax_op(recurrent)
_lengths: list[torch.Tensor] = []


@contextlib.contextmanager
def of_lengths(lengths: torch.Tensor) -> Iterator[None]:
    """Inside the block, each row of what a recurrent module gets ends after its length."""
    _lengths.append(lengths)
    try:
        yield
    finally:
        _lengths.pop()


def network(kind: str) -> Callable[..., Any]:
    """PyTorch's internal function for one kind of network; it has a second form for packed sequences."""

    def run(
        x: torch.Tensor,
        initial: torch.Tensor | Sequence[torch.Tensor],
        weights: torch.Tensor | Sequence[torch.Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool = False,
    ) -> tuple[torch.Tensor, ...]:
        if isinstance(weights, torch.Tensor | tuple) or (kind == "lstm" and isinstance(initial, torch.Tensor)):
            _refuse_packed()
        states = tuple(initial) if kind == "lstm" else (initial,)
        x, states, weights = _autocast(kind, x, states, tuple(weights))
        draw = next_key() if train and dropout > 0 and layers > 1 else None
        return _recurrent(
            x,
            states,
            weights,
            draw,
            _lengths[-1] if _lengths else None,
            kind=kind,
            layers=layers,
            directions=2 if bidirectional else 1,
            has_biases=bool(has_biases),
            dropout=float(dropout) if draw is not None else 0.0,
            batch_first=bool(batch_first),
        )

    return run


def _autocast(kind: str, x: torch.Tensor, states: tuple[Any, ...], weights: tuple[torch.Tensor, ...]) -> tuple[Any, Any, Any]:
    """Lower precision as eager PyTorch has it on CPU: a GRU keeps its state in full precision, the others do not."""
    if not torch.is_autocast_enabled("cpu") or x.dtype == torch.float64:
        return x, states, weights
    cast = functools.partial(torch.Tensor.to, dtype=torch.get_autocast_dtype("cpu"))
    return cast(x), states if kind == "gru" else tuple(map(cast, states)), tuple(map(cast, weights))


def _refuse_packed() -> NoReturn:
    raise CaptureError(
        "PyTorch's internal function for a packed sequence was called by itself, without nn.RNN, nn.LSTM or nn.GRU.\n"
        f"  used at {user_line_of()}\n"
        "Call the module with the packed sequence; or run in eager PyTorch with Trainer(compile=False)."
    )


@contextlib.contextmanager
def fresh_flat_weights() -> Iterator[None]:
    """Let recurrent modules, which keep a list of their weights, use the current ones; undone at the end."""
    kept: dict[int, tuple[list[Any], list[Any]]] = {}

    def update(self: nn.RNNBase) -> None:
        kept.setdefault(id(self), (self._flat_weights, list(self._flat_weights)))
        # in place: a new list would look like an attribute that the step assigns
        self._flat_weights[:] = [getattr(self, name) for name in self._flat_weights_names]

    try:
        with replaced(nn.RNNBase, "_update_flat_weights", update):
            yield
    finally:
        for weights, before in kept.values():
            weights[:] = before
