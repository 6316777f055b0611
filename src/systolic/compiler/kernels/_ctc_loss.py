"""Connectionist temporal classification as one op: PyTorch's own has results whose shape depends on the lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch

from ...utilities._torch_internals import _reduction
from ._jax_op import jax_op
from ._within import within

# stands for a log-probability of minus infinity, which would turn differences into NaN
_IMPOSSIBLE = -1e30

Lengths = torch.Tensor | Sequence[int]


def _padded(targets: jax.Array, lengths: jax.Array, longest: int) -> jax.Array:
    """Targets as [batch, longest]; PyTorch also takes them one after the other."""
    if targets.ndim == 2:
        return targets[:, :longest].astype(jnp.int32)
    inside = jnp.arange(longest) < lengths[:, None]
    places = (jnp.cumsum(lengths) - lengths)[:, None] + jnp.arange(longest)
    return jnp.where(inside, jnp.take(targets, places, mode="clip"), 0).astype(jnp.int32)


def _log_alpha(log_probs: jax.Array, labels: jax.Array, blank: int) -> jax.Array:
    """Log-probability of being at each place of each label sequence after each step, [time, batch, places].

    Equation 6 and 7 of https://www.cs.toronto.edu/~graves/icml_2006.pdf.
    """
    batch = labels.shape[0]
    places = jnp.full((batch, 2 * labels.shape[1] + 1), blank, jnp.int32).at[:, 1::2].set(labels)
    width = places.shape[1]
    # two places on is allowed only past a blank between different labels
    skips = jnp.concatenate([jnp.zeros((batch, min(2, width)), jnp.bool_), places[:, 2:] != places[:, :-2]], 1)
    skips &= places != blank
    emitted = jnp.take_along_axis(log_probs, jnp.broadcast_to(places, (log_probs.shape[0], batch, width)), 2)
    emitted = jnp.maximum(emitted, _IMPOSSIBLE)
    start = jnp.where(jnp.arange(width) < 2, emitted[0], _IMPOSSIBLE)

    def step(alpha: jax.Array, now: jax.Array) -> tuple[jax.Array, jax.Array]:
        one = _shifted(alpha, 1)
        two = jnp.where(skips, _shifted(alpha, 2), _IMPOSSIBLE)
        reached = jnp.maximum(jax.nn.logsumexp(jnp.stack([alpha, one, two]), axis=0) + now, _IMPOSSIBLE)
        return reached, reached

    return jnp.concatenate([start[None], jax.lax.scan(step, start, emitted[1:])[1]])


def _shifted(alpha: jax.Array, by: int) -> jax.Array:
    return jnp.pad(alpha, ((0, 0), (by, 0)), constant_values=_IMPOSSIBLE)[:, : alpha.shape[1]]


def _finite_losses(
    log_probs: jax.Array, targets: jax.Array, inputs: jax.Array, lengths: jax.Array, blank: int, longest: int
) -> jax.Array:
    """Negative log-likelihood of each sequence; more than 1e29 where it is infinite."""
    alpha = _log_alpha(log_probs, _padded(targets, lengths, longest), blank)
    rows, last = jnp.arange(inputs.shape[0]), 2 * lengths
    final = alpha[jnp.maximum(inputs - 1, 0), rows]
    at_blank = final[rows, last]
    at_label = jnp.where(last > 0, final[rows, jnp.maximum(last - 1, 0)], _IMPOSSIBLE)
    nothing = jnp.where(last > 0, -_IMPOSSIBLE, 0.0).astype(final.dtype)
    return jnp.where(inputs > 0, -jnp.logaddexp(at_blank, at_label), nothing)


def _with_gradient(blank: int, longest: int, zero_infinity: bool) -> Any:
    """The losses with PyTorch's gradient, which takes `log_probs` for the output of a log-softmax."""

    def losses(log_probs: jax.Array, targets: jax.Array, inputs: jax.Array, lengths: jax.Array) -> jax.Array:
        found = _finite_losses(log_probs, targets, inputs, lengths, blank, longest)
        return jnp.where(found > -_IMPOSSIBLE / 2, jnp.inf, found)

    def forward(*arguments: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        found = losses(*arguments)
        return found, (found, *arguments)

    def backward(kept: tuple[jax.Array, ...], grad: jax.Array) -> tuple[Any, ...]:
        found, log_probs, targets, inputs, lengths = kept
        _, pull = jax.vjp(lambda values: _finite_losses(values, targets, inputs, lengths, blank, longest), log_probs)
        slope = pull(jnp.ones_like(found))[0] + jnp.exp(log_probs)
        infinite = (found == jnp.inf)[None, :, None]
        slope = jnp.where(infinite, 0 if zero_infinity else jnp.nan, slope * grad[None, :, None])
        used = jnp.arange(log_probs.shape[0])[:, None] < inputs
        return jnp.where(used[:, :, None], slope, 0), None, None, None

    function: Any = jax.custom_vjp(losses)
    function.defvjp(forward, backward)
    return function


@jax_op
def _losses(
    log_probs: jax.Array,
    targets: jax.Array,
    inputs: jax.Array,
    lengths: jax.Array,
    *,
    blank: int,
    longest: int,
    zero_infinity: bool,
) -> jax.Array:
    wide = log_probs.astype(jnp.promote_types(log_probs.dtype, jnp.float32))
    lengths_of = [x.astype(jnp.int32) for x in (inputs, lengths)]
    return _with_gradient(blank, longest, zero_infinity)(wide, targets, *lengths_of).astype(log_probs.dtype)


def ctc_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """PyTorch's function of this name. Lengths in tensors may differ from step to step; sequences of numbers are constants."""
    if torch.is_autocast_enabled("cpu"):
        log_probs = log_probs.float()
    is_batch = log_probs.dim() == 3
    longest = _longest(targets, target_lengths)
    inputs, lengths = (_on_device(x, log_probs) for x in (input_lengths, target_lengths))
    batch = log_probs if is_batch else log_probs.unsqueeze(1)
    rows = targets.unsqueeze(0) if not is_batch and targets.dim() == 1 else targets
    _require_lengths(batch, input_lengths)
    inputs = within(inputs, 0, batch.shape[0] + 1, "input length", "ctc_loss")
    lengths = within(lengths, 0, targets.shape[-1] + 1, "target length", "ctc_loss")
    found = _losses(batch, rows, inputs, lengths, blank=int(blank), longest=longest, zero_infinity=bool(zero_infinity))
    if zero_infinity:
        found = torch.where(found == float("inf"), torch.zeros_like(found), found)
    if reduction == _reduction.get_enum("mean"):
        return (found / lengths.clamp(min=1).to(found.dtype)).mean()
    if reduction == _reduction.get_enum("sum"):
        return found.sum()
    return found if is_batch else found.squeeze(0)


def _longest(targets: torch.Tensor, lengths: Lengths) -> int:
    """How many labels a sequence can have."""
    if isinstance(lengths, torch.Tensor):
        return targets.shape[-1]
    return max(lengths, default=0)


def _on_device(lengths: Lengths, like: torch.Tensor) -> torch.Tensor:
    if isinstance(lengths, torch.Tensor):
        return lengths.reshape(-1)
    return torch.tensor(list(lengths), dtype=torch.int64, device=like.device)


def _require_lengths(log_probs: torch.Tensor, lengths: Lengths) -> None:
    """Refuse what PyTorch refuses, where it is known before the step runs."""
    steps, batch = log_probs.shape[:2]
    number = lengths.numel() if isinstance(lengths, torch.Tensor) else len(lengths)
    if number != batch:
        raise RuntimeError(f"input_lengths must be of size batch_size: expected {batch}, received {number}.")
    if not isinstance(lengths, torch.Tensor) and max(lengths, default=0) > steps:
        raise RuntimeError(f"Expected input_lengths to have value at most {steps}, but got value {max(lengths)}.")
