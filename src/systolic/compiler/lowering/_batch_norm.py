"""Batch normalisation, over the whole batch or over each core's part of it."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._context import current
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten

Maybe = jax.Array | None


def _groups(x: jax.Array) -> int:
    """Into how many parts of the batch training statistics are split: one a core, where it divides evenly."""
    shards = current().batch_shards
    return shards if shards > 1 and x.shape[0] % shards == 0 else 1


def _split(x: jax.Array, groups: int) -> jax.Array:
    """[N, C, ...] as [groups, N / groups, C, ...]."""
    return x.reshape(groups, x.shape[0] // groups, *x.shape[1:])


def _reduced(x: jax.Array) -> tuple[int, ...]:
    """The dimensions of a split input that statistics run over: all but group and channel."""
    return (1, *range(3, x.ndim))


def _statistics(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of a split input, kept as [groups, 1, C, 1, ...]."""
    mean = x.mean(_reduced(x), keepdims=True)
    return mean, jnp.square(x - mean).mean(_reduced(x), keepdims=True)


def _per_channel(values: jax.Array, rank: int) -> jax.Array:
    """[C] as [C, 1, ...], to broadcast over a (split) input whose unsplit form has `rank` dimensions."""
    return wide(values).reshape((-1,) + (1,) * (rank - 2))


def _scaled(xhat: jax.Array, weight: Maybe, bias: Maybe, rank: int) -> jax.Array:
    if weight is not None:
        xhat = xhat * _per_channel(weight, rank)
    return xhat if bias is None else xhat + _per_channel(bias, rank)


def _evaluate(x: jax.Array, weight: Maybe, bias: Maybe, mean: jax.Array, variance: jax.Array, eps: float) -> jax.Array:
    rstd = lax.rsqrt(wide(variance) + eps)
    centred = wide(x) - _per_channel(mean, x.ndim)
    return _scaled(centred * _per_channel(rstd, x.ndim), weight, bias, x.ndim).astype(x.dtype)


def _train(x: jax.Array, weight: Maybe, bias: Maybe, eps: float) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Normalised `x`, and per channel its mean, one over its deviation and its unbiased variance."""
    split = _split(wide(x), _groups(x))
    mean, variance = _statistics(split)
    rstd = lax.rsqrt(variance + eps)
    out = _scaled((split - mean) * rstd, weight, bias, x.ndim).reshape(x.shape).astype(x.dtype)
    count = split.size // max(split.shape[0] * split.shape[2], 1)
    unbiased = variance * (count / (count - 1)) if count > 1 else jnp.full_like(variance, jnp.nan)
    mean, rstd, unbiased = (value.reshape(split.shape[0], -1).mean(0) for value in (mean, rstd, unbiased))
    return out, mean, rstd, unbiased


def _moved(running: jax.Array, fresh: jax.Array, momentum: float) -> jax.Array:
    """The running statistic after one step."""
    return (wide(running) * (1 - momentum) + wide(fresh) * momentum).astype(running.dtype)


def _unsaved() -> tuple[jax.Array, jax.Array]:
    """What stands for the saved statistics of a call that saves none."""
    _, mean, rstd, *_ = current().output
    return jnp.zeros(tuple(mean.shape)), jnp.zeros(tuple(rstd.shape))


@lowers(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, ...]:
    """Output, saved mean and one over deviation, new running mean and variance."""
    if not training:
        out = _evaluate(x, weight, bias, running_mean, running_var, eps)
        return (out, *_unsaved(), running_mean, running_var)
    out, mean, rstd, unbiased = _train(x, weight, bias, eps)
    return out, mean, rstd, _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)


@lowers(aten._batch_norm_with_update_functional.default)
def batch_norm_with_update(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, ...]:
    """As `batch_norm_functional` in training, with an empty reserve in the middle."""
    out, mean, rstd, new_mean, new_var = batch_norm_functional(
        x, weight, bias, running_mean, running_var, True, momentum, eps
    )
    return out, mean, rstd, jnp.zeros(tuple(current().output[3].shape), jnp.uint8), new_mean, new_var


@lowers(aten._batch_norm_no_update.default)
def batch_norm_no_update(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, ...]:
    """Normalise with the running statistics where there are some, with the batch's own where not."""
    reserve = jnp.zeros(tuple(current().output[3].shape), jnp.uint8)
    if running_mean is None or running_var is None:
        return (*_train(x, weight, bias, eps)[:3], reserve)
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved(), reserve)


@lowers(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: jax.Array, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float
) -> tuple[jax.Array, ...]:
    """Normalise with the batch's own statistics."""
    return _train(x, weight, bias, eps)[:3]


@lowers(aten._native_batch_norm_legit_no_training.default)
def batch_norm_no_training(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, ...]:
    """Normalise with the running statistics."""
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved())


@lowers(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def native_batch_norm(
    x: jax.Array,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[jax.Array, ...]:
    """Without new running statistics: functional graphs use this form where there are none to update."""
    if training or running_mean is None or running_var is None:
        return _train(x, weight, bias, eps)[:3]
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved())


@lowers(aten.native_batch_norm_backward.default)
def native_batch_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Maybe, Maybe, Maybe]:
    """Gradients of input, weight and bias, each only where `output_mask` asks for it."""
    groups = _groups(x) if train else 1
    split, grad = _split(wide(x), groups), _split(wide(grad), groups)
    mean, rstd = _used_statistics(split, running_mean, running_var, save_mean, save_invstd, train, eps)
    axes = _reduced(split)
    xhat = (split - mean) * rstd
    grad_weight = (grad * xhat).sum(axes, keepdims=True)
    grad_bias = grad.sum(axes, keepdims=True)
    grad_x = grad
    if train:
        count = split.size // max(split.shape[0] * split.shape[2], 1)
        grad_x = grad - (grad_bias + xhat * grad_weight) / count
    grad_x = _scaled(grad_x * rstd, weight, None, x.ndim).reshape(x.shape)
    return (
        grad_x if output_mask[0] else None,
        grad_weight.sum(0).reshape(-1) if output_mask[1] else None,
        grad_bias.sum(0).reshape(-1) if output_mask[2] else None,
    )


def _used_statistics(
    split: jax.Array,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    train: bool,
    eps: float,
) -> tuple[jax.Array, jax.Array]:
    """The mean and one over the deviation that the forward normalised with."""
    if train and split.shape[0] > 1:
        # what was saved is the mean over groups, as the saved shape has no room for each group's own
        mean, variance = _statistics(split)
        return mean, lax.rsqrt(variance + eps)
    rank = split.ndim - 1
    if train:
        assert save_mean is not None, "a training batch norm saves its mean"
        assert save_invstd is not None, "a training batch norm saves one over its deviation"
        return _per_channel(save_mean, rank), _per_channel(save_invstd, rank)
    assert running_mean is not None, "an evaluating batch norm has a running mean"
    assert running_var is not None, "an evaluating batch norm has a running variance"
    return _per_channel(running_mean, rank), _per_channel(lax.rsqrt(wide(running_var) + eps), rank)


@lowers(aten.batch_norm_backward.default)
def batch_norm_backward(
    grad: jax.Array,
    x: jax.Array,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: jax.Array,
) -> tuple[Maybe, Maybe, Maybe]:
    """As `native_batch_norm_backward`."""
    return native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_invstd, update, eps, output_mask
    )
