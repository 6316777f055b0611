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
from ._jax_op import op_with_kernels
from ._keys import bernoulli, next_key
from ._recurrent_layer import CELLS, Layer, State, Weights, looped, scanned

KINDS = tuple(CELLS)
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
    run_layer: Layer = scanned,
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
        run_layer: runs a layer in one direction, after the products of its inputs.

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
            from_input, *own = weights[run * per_run : (run + 1) * per_run]
            bias, hidden_bias = own[1:3] if has_biases else (None, None)
            if CELLS[kind].sums and bias is not None and hidden_bias is not None:
                bias, hidden_bias = None, bias + hidden_bias  # so that one sum over all times is the gradient of both
            of_hidden = Weights(own[0], hidden_bias, own[-1] if len(own) % 2 == 0 else None)
            gates = _of_input(x, from_input, bias)
            initial_state = tuple(s[run] for s in initial)
            output, state = run_layer(CELLS[kind], direction == 1, gates, initial_state, of_hidden, live)
            outputs.append(output)
            final.append(state)
        x = outputs[0] if directions == 1 else jnp.concatenate(outputs, axis=-1)
    return jnp.swapaxes(x, 0, 1) if batch_first else x, *(jnp.stack(states) for states in zip(*final, strict=True))


def _of_input(x: jax.Array, weight: jax.Array, bias: jax.Array | None) -> jax.Array:
    """The inputs' part of the gates, [time, batch, gates]; only the hidden state's part has to wait."""
    # one product for all times; not flattened, since a batch that lies on several devices is no leading dimension
    gates = jax.lax.dot_general(x.astype(weight.dtype), weight, (((2,), (1,)), ((), ())))
    return gates if bias is None else gates + bias


def _lstm_layer(
    x: jax.Array, initial: State, weights: Sequence[jax.Array], *, reverse: bool, run_layer: Layer = scanned
) -> State:
    """One layer of an LSTM in one direction: the results for every time, and the final states; arguments as above."""
    settings = {"layers": 1, "directions": 1, "has_biases": len(weights) > 2, "dropout": 0.0, "batch_first": False}
    y, *final = recurrent(x[::-1] if reverse else x, initial, weights, None, None, kind="lstm", run_layer=run_layer, **settings)
    return y[::-1] if reverse else y, *final


def _lstm_layer_gradients(
    cotangents: State, x: jax.Array, initial: State, weights: Sequence[jax.Array], *, reverse: bool, run_layer: Layer = scanned
) -> tuple[Any, ...]:
    _, pullback = jax.vjp(functools.partial(_lstm_layer, reverse=reverse, run_layer=run_layer), x, initial, weights)
    return pullback(cotangents)


def _with_loops(function: Callable[..., Any]) -> Callable[..., Any]:
    return op_with_kernels(function, dict.fromkeys(("cpu", "gpu", "tpu"), functools.partial(function, run_layer=looped)))


# for the op of PyTorch's that is one such layer, and the op that is its gradient
lstm_layer, lstm_layer_gradients = _with_loops(_lstm_layer), _with_loops(_lstm_layer_gradients)
_recurrent = _with_loops(recurrent)
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
