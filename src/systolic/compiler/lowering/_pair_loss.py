"""Losses that compare two tensors element by element, or a score with every other one of its row."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._loss import MEAN, NONE
from ._pullback import index32, pullback, wide
from ._table import lowers

aten = torch.ops.aten


def _reduced(loss: jax.Array, reduction: int) -> jax.Array:
    if reduction == NONE:
        return loss
    return loss.mean() if reduction == MEAN else loss.sum()


def _spread(grad: jax.Array, slope: jax.Array, reduction: int) -> jax.Array:
    """The gradient of a reduced loss whose elements have derivative `slope`."""
    out = wide(grad) * slope
    return out / max(slope.size, 1) if reduction == MEAN else out


def _pair(x: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Both operands, broadcast, in the dtype to compute in."""
    x, target = wide(x), wide(target)
    dtype = jnp.promote_types(x.dtype, target.dtype)
    x, target = jnp.broadcast_arrays(x.astype(dtype), target.astype(dtype))
    return x, target


@lowers(aten.mse_loss.default)
def mse_loss(x: jax.Array, target: jax.Array, reduction: int = MEAN) -> jax.Array:
    """Squared difference."""
    x, target = _pair(x, target)
    return _reduced(jnp.square(x - target), reduction)


@lowers(aten.mse_loss_backward.default)
def mse_loss_backward(grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int) -> jax.Array:
    """Gradient of `x`."""
    x, target = _pair(x, target)
    return _spread(grad, 2 * (x - target), reduction)


@lowers(aten.smooth_l1_loss.default)
def smooth_l1_loss(x: jax.Array, target: jax.Array, reduction: int = MEAN, beta: float = 1.0) -> jax.Array:
    """Squared difference near zero, absolute difference from `beta` on."""
    x, target = _pair(x, target)
    size = jnp.abs(x - target)
    loss = size if beta == 0 else jnp.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta)
    return _reduced(loss, reduction)


@lowers(aten.smooth_l1_loss_backward.default)
def smooth_l1_loss_backward(grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int, beta: float) -> jax.Array:
    """Gradient of `x`."""
    x, target = _pair(x, target)
    difference = x - target
    slope = jnp.sign(difference)
    if beta != 0:
        slope = jnp.where(jnp.abs(difference) < beta, difference / beta, slope)
    return _spread(grad, slope, reduction)


@lowers(aten.huber_loss.default)
def huber_loss(x: jax.Array, target: jax.Array, reduction: int = MEAN, delta: float = 1.0) -> jax.Array:
    """Squared difference up to `delta`, linear beyond."""
    x, target = _pair(x, target)
    size = jnp.abs(x - target)
    return _reduced(jnp.where(size < delta, 0.5 * size * size, delta * (size - 0.5 * delta)), reduction)


@lowers(aten.huber_loss_backward.default)
def huber_loss_backward(grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int, delta: float) -> jax.Array:
    """Gradient of `x`."""
    x, target = _pair(x, target)
    difference = x - target
    slope = jnp.where(jnp.abs(difference) < delta, difference, jnp.sign(difference) * delta)
    return _spread(grad, slope, reduction)


@lowers(aten.soft_margin_loss.default)
def soft_margin_loss(x: jax.Array, target: jax.Array, reduction: int = MEAN) -> jax.Array:
    """Logistic loss of targets 1 and -1."""
    x, target = _pair(x, target)
    return _reduced(jnp.log1p(jnp.exp(-target * x)), reduction)


@lowers(aten.soft_margin_loss_backward.default)
def soft_margin_loss_backward(grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int) -> jax.Array:
    """Gradient of `x`."""
    x, target = _pair(x, target)
    odds = jnp.exp(-target * x)
    return _spread(grad, -target * odds / (odds + 1), reduction)


@lowers(aten.binary_cross_entropy.default)
def binary_cross_entropy(x: jax.Array, target: jax.Array, weight: jax.Array | None = None, reduction: int = MEAN) -> jax.Array:
    """Cross entropy of probabilities; logarithms stop at -100."""
    current().require_in_unit_interval(x, "input")
    current().require_in_unit_interval(target, "target")
    x, target = _pair(x, target)
    loss = (target - 1) * jnp.maximum(jnp.log1p(-x), -100) - target * jnp.maximum(jnp.log(x), -100)
    return _reduced(loss if weight is None else loss * wide(weight), reduction)


@lowers(aten.binary_cross_entropy_backward.default)
def binary_cross_entropy_backward(
    grad: jax.Array, x: jax.Array, target: jax.Array, weight: jax.Array | None = None, reduction: int = MEAN
) -> jax.Array:
    """Gradient of `x`."""
    x, target = _pair(x, target)
    slope = (x - target) / jnp.maximum((1 - x) * x, 1e-12)
    return _spread(grad, slope if weight is None else slope * wide(weight), reduction)


@lowers(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None = None,
    pos_weight: jax.Array | None = None,
    reduction: int = MEAN,
) -> jax.Array:
    """Cross entropy of log-odds."""
    x, target = _pair(x, target)
    log_likelihood = jnp.minimum(x, 0) - jnp.log1p(jnp.exp(-jnp.abs(x)))
    if pos_weight is not None:
        log_likelihood = log_likelihood * ((wide(pos_weight) - 1) * target + 1)
    loss = (1 - target) * x - log_likelihood
    return _reduced(loss if weight is None else loss * wide(weight), reduction)


def _rows(function: Callable[[jax.Array], jax.Array], x: jax.Array, reduction: int) -> jax.Array:
    """The reduced loss of one row, or of each row of a batch."""
    return _reduced(function(jnp.atleast_2d(wide(x))), reduction)


def _multi_margin(
    x: jax.Array, target: jax.Array, p: float, margin: float, weight: jax.Array | None, reduction: int
) -> jax.Array:
    at = jnp.atleast_1d(index32(target, x.shape[-1] if x.ndim else 1))[:, None]

    def loss(x: jax.Array) -> jax.Array:
        gap = margin - jnp.take_along_axis(x, at, 1, mode="fill") + x
        cost = jnp.where(gap > 0, gap if p == 1 else gap * gap, 0)
        if weight is not None:
            cost = cost * wide(weight)[at]
        return jnp.where(jnp.arange(x.shape[1]) == at, 0, cost).sum(1) / x.shape[1]

    return _rows(loss, x, reduction)


@lowers(aten.multi_margin_loss.default)
def multi_margin_loss(
    x: jax.Array,
    target: jax.Array,
    p: float = 1,
    margin: float = 1,
    weight: jax.Array | None = None,
    reduction: int = MEAN,
) -> jax.Array:
    """How far every other class comes within `margin` of the target's score."""
    current().require_in_range(target, x.shape[-1] if x.ndim else 1, what="target")
    return _multi_margin(x, target, p, margin, weight, reduction)


@lowers(aten.multi_margin_loss_backward.default)
def multi_margin_loss_backward(
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    p: float,
    margin: float,
    weight: jax.Array | None = None,
    reduction: int = MEAN,
) -> jax.Array:
    """Gradient of `x`."""
    return pullback(lambda x: _multi_margin(x, target, p, margin, weight, reduction), (wide(x),), wide(grad))[0]


def _label_sets(target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Labels up to each row's first -1 (one past the last class after it), and which classes they name."""
    labels = jnp.atleast_2d(target).astype(jnp.int32)
    classes = labels.shape[1]
    listed = jnp.cumprod(labels >= 0, axis=1).astype(jnp.bool_)
    labels = jnp.where(listed, labels, classes)
    rows = jnp.arange(labels.shape[0], dtype=jnp.int32)[:, None]
    return labels, jnp.zeros(labels.shape, jnp.bool_).at[rows, labels].set(True, mode="drop")


def _multilabel_margin(x: jax.Array, target: jax.Array, reduction: int) -> jax.Array:
    labels, named = _label_sets(target)

    def loss(x: jax.Array) -> jax.Array:
        listed = (labels < x.shape[1])[:, :, None]
        score = jnp.take_along_axis(x, jnp.minimum(labels, x.shape[1] - 1), 1)[:, :, None]
        gap = 1 - score + x[:, None, :]
        return jnp.where(listed & ~named[:, None, :] & (gap > 0), gap, 0).sum((1, 2)) / x.shape[1]

    return _rows(loss, x, reduction)


@lowers(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss(x: jax.Array, target: jax.Array, reduction: int) -> tuple[jax.Array, jax.Array]:
    """How far every class outside the label set comes within one of those in it; also the label set as a mask."""
    current().require_in_range(target, target.shape[-1] if target.ndim else 1, low=-1, what="target")
    return _multilabel_margin(x, target, reduction), _label_sets(target)[1].reshape(target.shape)


@lowers(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_loss_backward(
    grad: jax.Array, x: jax.Array, target: jax.Array, reduction: int, is_target: jax.Array
) -> jax.Array:
    """Gradient of `x`."""
    return pullback(lambda x: _multilabel_margin(x, target, reduction), (wide(x),), wide(grad))[0]
