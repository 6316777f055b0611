"""Connectionist temporal classification."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._pullback import pullback, wide
from ._table import lowers

aten = torch.ops.aten

# stands for a log-probability of minus infinity, which would turn differences into NaN
_IMPOSSIBLE = -1e30


def _padded_targets(targets: jax.Array, lengths: Sequence[int]) -> jax.Array:
    """Targets as [batch, longest]; PyTorch also takes them one after the other."""
    longest = max(lengths, default=0)
    if targets.ndim == 2:
        return targets[:, :longest].astype(jnp.int32)
    starts = np.cumsum([0, *lengths[:-1]])[:, None]
    inside = np.arange(longest)[None, :] < np.asarray(lengths)[:, None]
    places = np.where(inside, starts + np.arange(longest), 0)
    return jnp.where(inside, targets[places] if targets.size else 0, 0).astype(jnp.int32)


def _log_alpha(log_probs: jax.Array, labels: jax.Array, blank: int) -> jax.Array:
    """Log-probability of being at each place of each label sequence after each step, [time, batch, places]."""
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


def _loss(
    log_probs: jax.Array, labels: jax.Array, input_lengths: Sequence[int], target_lengths: Sequence[int], blank: int
) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood a sequence, and the alphas."""
    alpha = _log_alpha(log_probs, labels, blank)
    rows, last = np.arange(len(input_lengths)), 2 * np.asarray(target_lengths, np.int32)
    final = alpha[np.asarray(input_lengths, np.int32) - 1, rows]
    at_blank = final[rows, last]
    at_label = jnp.where(last > 0, final[rows, np.maximum(last - 1, 0)], _IMPOSSIBLE)
    return -jnp.logaddexp(at_blank, at_label), alpha


@lowers(aten._ctc_loss.default)
def ctc_loss(
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Negative log-likelihood of each target sequence, and the forward variables."""
    labels = _padded_targets(targets, target_lengths)
    loss, alpha = _loss(wide(log_probs), labels, input_lengths, target_lengths, blank)
    return jnp.where(loss > -_IMPOSSIBLE / 2, jnp.inf, loss), jnp.swapaxes(alpha, 0, 1)


@lowers(aten._ctc_loss_backward.default)
def ctc_loss_backward(
    grad: jax.Array,
    log_probs: jax.Array,
    targets: jax.Array,
    input_lengths: Sequence[int],
    target_lengths: Sequence[int],
    neg_log_likelihood: jax.Array,
    log_alpha: jax.Array,
    blank: int,
    zero_infinity: bool = False,
) -> jax.Array:
    """Gradient of `log_probs`; like PyTorch's it takes them for the output of a log-softmax."""
    labels = _padded_targets(targets, target_lengths)
    values = wide(log_probs)

    def total(values: jax.Array) -> jax.Array:
        return _loss(values, labels, input_lengths, target_lengths, blank)[0]

    slope = pullback(total, (values,), jnp.ones_like(neg_log_likelihood))[0] + jnp.exp(values)
    used = np.arange(values.shape[0])[:, None] < np.asarray(input_lengths)[None, :]
    infinite = neg_log_likelihood == jnp.inf
    slope = jnp.where(infinite[None, :, None], 0 if zero_infinity else jnp.nan, slope * grad[None, :, None])
    return jnp.where(used[:, :, None], slope, 0)
