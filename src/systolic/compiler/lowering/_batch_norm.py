"""Batch normalisation, over the whole batch or over each core's part of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._channels_last import ChannelsLast, Value, alike, array_of, held_like, takes_channels_last
from ._column_sums import total
from ._context import current
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten

Maybe = jax.Array | None


def _groups(x: Value) -> int:
    """Into how many parts of the batch training statistics are split: one a core, where it divides evenly."""
    shards = current().batch_shards
    return shards if shards > 1 and x.shape[0] % shards == 0 else 1


def _split(x: jax.Array, groups: int) -> jax.Array:
    """[N, ...] as [groups, N / groups, ...]."""
    return x.reshape(groups, x.shape[0] // groups, *x.shape[1:])


def dimensions_inside(x: Value) -> int:
    """How many dimensions follow that of the channels in the array that holds `x`."""
    return 0 if isinstance(x, ChannelsLast) else x.ndim - 2


def _reduced(split: jax.Array, inner: int) -> tuple[int, ...]:
    """The dimensions of a split input that statistics run over: all but group and channel."""
    return tuple(axis for axis in range(1, split.ndim) if axis != split.ndim - 1 - inner)


def _count(split: jax.Array, inner: int) -> int:
    """How many elements each statistic is made from."""
    return math.prod(split.shape[axis] for axis in _reduced(split, inner))


def _in_few_operations(dtype: jnp.dtype) -> bool:
    """Whether sums and factors of a channel are taken together: on TPU, whose vector unit works on 16 bits as on 32.

    What that loses, 2**-24 (mean / deviation), is less than what rounding the input to 16 bits did.
    """
    return current().platform == "tpu" and jnp.finfo(dtype).bits == 16


def _statistics(split: jax.Array, inner: int, dtype: jnp.dtype) -> tuple[jax.Array, jax.Array]:
    """Mean and biased variance of a split input, with 1 for each dimension that they run over.

    Args:
        split: in float32 at least.
        inner: how many dimensions follow that of the channels.
        dtype: of the input before it was widened.
    """
    axes = _reduced(split, inner)
    count = _count(split, inner)
    mean = total(split, axes, keepdims=True) / count
    if _in_few_operations(dtype):
        # Both sums come out of one pass, which XLA joins with the convolution before it. What the difference of squares
        # loses, 2**-24 (mean / deviation)**2, is less than what rounding the input to 16 bits did to the variance.
        return mean, jnp.maximum(jnp.square(split).mean(axes, keepdims=True) - jnp.square(mean), 0)
    return mean, total(jnp.square(split - mean), axes, keepdims=True, computed=True) / count


def _per_channel(values: jax.Array, inner: int) -> jax.Array:
    """[C] as [C, 1, ...], to broadcast over a (split) input."""
    return wide(values).reshape((-1,) + (1,) * inner)


def scaled(xhat: jax.Array, weight: Maybe, bias: Maybe, inner: int) -> jax.Array:
    """`xhat` times the weight of each channel, plus its bias; `inner` dimensions follow that of the channels."""
    if weight is not None:
        xhat = xhat * _per_channel(weight, inner)
    return xhat if bias is None else xhat + _per_channel(bias, inner)


def _normalised(
    split: jax.Array, mean: jax.Array, rstd: jax.Array, weight: Maybe, bias: Maybe, inner: int, dtype: jnp.dtype
) -> jax.Array:
    """A split input, normalised and scaled; `dtype` is that of the input before it was widened."""
    if not _in_few_operations(dtype):
        return scaled((split - mean) * rstd, weight, bias, inner)
    factor = scaled(rstd, weight, None, inner)
    return split * factor + scaled(-mean * factor, None, bias, inner)


def _evaluate(x: Value, weight: Maybe, bias: Maybe, mean: jax.Array, variance: jax.Array, eps: float) -> Value:
    inner = dimensions_inside(x)
    rstd = lax.rsqrt(wide(variance) + eps)
    centred = wide(array_of(x)) - _per_channel(mean, inner)
    return held_like(scaled(centred * _per_channel(rstd, inner), weight, bias, inner).astype(x.dtype), x)


def _train(x: Value, weight: Maybe, bias: Maybe, eps: float) -> tuple[Value, jax.Array, jax.Array, jax.Array]:
    """Normalised `x`, and per channel its mean, one over its deviation and its unbiased variance."""
    array, inner = array_of(x), dimensions_inside(x)
    split = _split(wide(array), _groups(x))
    mean, variance = _statistics(split, inner, array.dtype)
    rstd = lax.rsqrt(variance + eps)
    out = _normalised(split, mean, rstd, weight, bias, inner, array.dtype).reshape(array.shape).astype(x.dtype)
    count = _count(split, inner)
    unbiased = variance * (count / (count - 1)) if count > 1 else jnp.full_like(variance, jnp.nan)
    mean, rstd, unbiased = (value.reshape(split.shape[0], -1).mean(0) for value in (mean, rstd, unbiased))
    return held_like(out, x), mean, rstd, unbiased


def _moved(running: jax.Array, fresh: jax.Array, momentum: float) -> jax.Array:
    """The running statistic after one step."""
    return (wide(running) * (1 - momentum) + wide(fresh) * momentum).astype(running.dtype)


def _unsaved() -> tuple[jax.Array, jax.Array]:
    """Placeholders for the saved statistics of a call that saves none."""
    _, mean, rstd, *_ = current().output
    return jnp.zeros(tuple(mean.shape)), jnp.zeros(tuple(rstd.shape))


@lowers(aten._native_batch_norm_legit_functional.default)
@takes_channels_last
def batch_norm_functional(
    x: Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Output, saved mean and one over deviation, new running mean and variance."""
    if not training:
        out = _evaluate(x, weight, bias, running_mean, running_var, eps)
        return (out, *_unsaved(), running_mean, running_var)
    out, mean, rstd, unbiased = _train(x, weight, bias, eps)
    return out, mean, rstd, _moved(running_mean, mean, momentum), _moved(running_var, unbiased, momentum)


@lowers(aten._batch_norm_with_update_functional.default)
@takes_channels_last
def batch_norm_with_update(
    x: Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """As `batch_norm_functional` in training, with an empty reserve in the middle."""
    out, mean, rstd, new_mean, new_var = batch_norm_functional(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return out, mean, rstd, jnp.zeros(tuple(current().output[3].shape), jnp.uint8), new_mean, new_var


@lowers(aten._batch_norm_no_update.default)
@takes_channels_last
def batch_norm_no_update(
    x: Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Normalise with the running statistics where there are some, with the batch's own where not."""
    reserve = jnp.zeros(tuple(current().output[3].shape), jnp.uint8)
    if running_mean is None or running_var is None:
        return (*_train(x, weight, bias, eps)[:3], reserve)
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved(), reserve)


@lowers(aten._native_batch_norm_legit.no_stats)
@takes_channels_last
def batch_norm_no_stats(x: Value, weight: Maybe, bias: Maybe, training: bool, momentum: float, eps: float) -> tuple[Value, ...]:
    """Normalise with the batch's own statistics."""
    return _train(x, weight, bias, eps)[:3]


@lowers(aten._native_batch_norm_legit_no_training.default)
@takes_channels_last
def batch_norm_no_training(
    x: Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: jax.Array,
    running_var: jax.Array,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Normalise with the running statistics."""
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved())


@lowers(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
@takes_channels_last
def native_batch_norm(
    x: Value,
    weight: Maybe,
    bias: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """Without new running statistics: functional graphs use this form where there are none to update."""
    if training or running_mean is None or running_var is None:
        return _train(x, weight, bias, eps)[:3]
    return (_evaluate(x, weight, bias, running_mean, running_var, eps), *_unsaved())


@lowers(aten.native_batch_norm_backward.default)
@takes_channels_last
def native_batch_norm_backward(
    grad: Value,
    x: Value,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Maybe, Maybe]:
    """Gradients of input, weight and bias, each only where `output_mask` asks for it."""
    grad, x = alike(grad, x)
    array, inner = array_of(x), dimensions_inside(x)
    groups = _groups(x) if train else 1
    split, grads = _split(wide(array), groups), _split(wide(array_of(grad)), groups)
    mean, rstd = _used_statistics(split, inner, array.dtype, running_mean, running_var, save_mean, save_invstd, train, eps)
    axes, count = _reduced(split, inner), max(_count(split, inner), 1)
    grad_bias = total(grads, axes, keepdims=True, computed=True)
    if train and _in_few_operations(array.dtype):
        grad_weight = total(grads * (split - mean), axes, keepdims=True, computed=True) * rstd
        factor = scaled(rstd, weight, None, inner)
        slope = factor * rstd * grad_weight / count
        grad_x = grads * factor - split * slope + (slope * mean - factor * grad_bias / count)
    else:
        xhat = (split - mean) * rstd
        grad_weight = total(grads * xhat, axes, keepdims=True, computed=True)
        grad_x = grads - (grad_bias + xhat * grad_weight) / count if train else grads
        grad_x = scaled(grad_x * rstd, weight, None, inner)
    grad_x = grad_x.reshape(array.shape)
    return (
        held_like(grad_x, x) if output_mask[0] else None,
        grad_weight.sum(0).reshape(-1) if output_mask[1] else None,
        grad_bias.sum(0).reshape(-1) if output_mask[2] else None,
    )


def _used_statistics(
    split: jax.Array,
    inner: int,
    dtype: jnp.dtype,
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
        mean, variance = _statistics(split, inner, dtype)
        return mean, lax.rsqrt(variance + eps)
    if train:
        assert save_mean is not None, "a training batch norm saves its mean"
        assert save_invstd is not None, "a training batch norm saves one over its deviation"
        return _per_channel(save_mean, inner), _per_channel(save_invstd, inner)
    assert running_mean is not None, "an evaluating batch norm has a running mean"
    assert running_var is not None, "an evaluating batch norm has a running variance"
    return _per_channel(running_mean, inner), _per_channel(lax.rsqrt(wide(running_var) + eps), inner)


@lowers(aten.batch_norm_backward.default)
@takes_channels_last
def batch_norm_backward(
    grad: Value,
    x: Value,
    weight: Maybe,
    running_mean: Maybe,
    running_var: Maybe,
    save_mean: Maybe,
    save_invstd: Maybe,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: jax.Array,
) -> tuple[Value | None, Maybe, Maybe]:
    """As `native_batch_norm_backward`."""
    return native_batch_norm_backward(
        grad, x, weight, running_mean, running_var, save_mean, save_invstd, update, eps, output_mask
    )
