"""Losses over class indices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

from ._context import current
from ._pullback import index32, wide
from ._table import lowers

aten = torch.ops.aten

NONE, MEAN, SUM = 0, 1, 2


@lowers(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    x: jax.Array, target: jax.Array, weight: jax.Array | None, reduction: int, ignore_index: int
) -> tuple[jax.Array, jax.Array]:
    """Negative log likelihood of the target classes, and the weight that its mean divides by."""
    classes = min(1, x.ndim - 1)
    require_classes(target, x.shape[classes], ignore_index)
    picked, scale = class_weights(target, weight, ignore_index, x.shape[classes], x.dtype)
    chosen = jnp.take_along_axis(wide(x), jnp.expand_dims(picked, classes), classes).squeeze(classes)
    return reduced(chosen, target, scale, reduction, ignore_index, x.dtype)


def require_classes(target: jax.Array, classes: int, ignore_index: int) -> None:
    """Check the targets that count."""
    current().require_in_range(target, classes, ignored=ignore_index, what="target")


def reduced(
    chosen: jax.Array, target: jax.Array, scale: jax.Array, reduction: int, ignore_index: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """The loss, and the weight that its mean divides by, from the log-likelihood of each target."""
    # a class of likelihood zero that is ignored must not turn 0 * inf into NaN
    loss = jnp.where(target == ignore_index, 0, -chosen * scale)
    if reduction == NONE:
        return loss.astype(dtype), jnp.zeros((), dtype)
    total = scale.sum()
    loss = loss.sum() if reduction == SUM else loss.sum() / total
    return loss.astype(dtype), total.astype(dtype)


@lowers(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: jax.Array,
) -> jax.Array:
    """Minus the class weight at each target; written as a comparison, so that no scatter is needed."""
    hit, scale = target_scales(grad, x, target, weight, reduction, ignore_index, total_weight)
    return jnp.where(hit, -scale, 0).astype(x.dtype)


def target_scales(
    grad: jax.Array,
    x: jax.Array,
    target: jax.Array,
    weight: jax.Array | None,
    reduction: int,
    ignore_index: int,
    total_weight: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Whether an element of `x` belongs to the target class, and what the loss falls by per unit of that log-likelihood."""
    classes = min(1, x.ndim - 1)
    picked, scale = class_weights(target, weight, ignore_index, x.shape[classes], x.dtype)
    scale = scale * wide(grad)
    if reduction == MEAN:
        scale = scale / wide(total_weight)
    scale = jnp.where(target == ignore_index, 0, scale)
    return hits(x.shape, picked, classes), jnp.expand_dims(scale, classes)


def hits(shape: tuple[int, ...], picked: jax.Array, classes: int) -> jax.Array:
    """Whether an element belongs to the class that its row is to have."""
    return jax.lax.broadcasted_iota(picked.dtype, shape, classes) == jnp.expand_dims(picked, classes)


def class_weights(
    target: jax.Array, weight: jax.Array | None, ignore_index: int, classes: int, dtype: jnp.dtype
) -> tuple[jax.Array, jax.Array]:
    """The class of each target (0 where ignored) and its weight (0 where ignored)."""
    kept = target != ignore_index
    picked = jnp.where(kept, index32(target, classes), 0).astype(jnp.int32)
    scale = wide(jnp.ones((), dtype)) if weight is None else wide(weight)[picked]
    return picked, jnp.where(kept, scale, 0)
