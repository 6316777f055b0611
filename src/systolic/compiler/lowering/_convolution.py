"""Convolutions, plain and transposed, of one to three spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._channels_last import ChannelsLast, Value, ordinary, takes_channels_last
from ._pullback import pullback, wide
from ._table import lowers

aten = torch.ops.aten


@lowers(aten.convolution.default, aten.convolution_overrideable.default)
@takes_channels_last
def convolution(
    x: Value,
    weight: Value,
    bias: jax.Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    """`x` [N, C, ...] with `weight` [out, in / groups, ...], or [in, out / groups, ...] when transposed."""
    out = _convolve(_entering(x), ordinary(weight), stride, padding, dilation, transposed, output_padding, groups)
    if bias is not None:
        out = out + bias
    return _leaving(out)


@lowers(aten.convolution_backward.default, aten.convolution_backward_overrideable.default)
@takes_channels_last
def convolution_backward(
    grad: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, jax.Array | None, jax.Array | None]:
    """Gradients of input, weight and bias, each only where `output_mask` asks for it."""
    grad, x, weight = _entering(grad), _entering(x), ordinary(weight)

    def forward(x: jax.Array, weight: jax.Array) -> jax.Array:
        return _convolve(x, weight, stride, padding, dilation, transposed, output_padding, groups)

    grad_x = pullback(lambda x: forward(x, weight), (x,), grad)[0] if output_mask[0] else None
    grad_weight = pullback(lambda weight: forward(x, weight), (weight,), grad)[0] if output_mask[1] else None
    grad_bias = wide(grad).sum(range(grad.ndim - 1)).astype(grad.dtype) if output_mask[2] else None
    return None if grad_x is None else _leaving(grad_x), grad_weight, grad_bias


def _entering(x: Value) -> jax.Array:
    """[N, C, ...] as [N, ..., C]."""
    return x.array if isinstance(x, ChannelsLast) else jnp.moveaxis(x, 1, -1)


def _leaving(out: jax.Array) -> Value:
    """The reverse; images stay as they are, for the ops that follow."""
    return ChannelsLast(out) if out.ndim == 4 else jnp.moveaxis(out, -1, 1)


def _convolve(
    x: jax.Array,
    weight: jax.Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> jax.Array:
    """`x` [N, ..., C] with a weight as PyTorch has it."""
    spatial = x.ndim - 2
    stride, padding, dilation, output_padding = (
        _per_dimension(v, spatial) for v in (stride, padding, dilation, output_padding)
    )
    if not transposed:
        return lax.conv_general_dilated(
            x,
            _kernel_first(weight),
            stride,
            [(p, p) for p in padding],
            rhs_dilation=dilation,
            dimension_numbers=_layout(spatial),
            feature_group_count=groups,
        )
    # the adjoint of a convolution: spread the input by the stride, convolve with the mirrored kernel
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    return lax.conv_general_dilated(
        x,
        _kernel_first(_mirrored(weight, groups)),
        (1,) * spatial,
        [(r - p, r - p + extra) for r, p, extra in zip(reach, padding, output_padding, strict=True)],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        dimension_numbers=_layout(spatial),
        feature_group_count=groups,
    )


def _kernel_first(weight: jax.Array) -> jax.Array:
    """[out, in, ...] as [..., in, out]."""
    return jnp.moveaxis(weight, (1, 0), (-2, -1))


def _mirrored(weight: jax.Array, groups: int) -> jax.Array:
    """A transposed convolution's weight [in, out / groups, ...] as [out, in / groups, ...], kernel reversed."""
    channels_in, channels_out, *kernel = weight.shape
    grouped = weight.reshape(groups, channels_in // groups, channels_out, *kernel)
    swapped = jnp.swapaxes(grouped, 1, 2).reshape(groups * channels_out, channels_in // groups, *kernel)
    return jnp.flip(swapped, range(2, swapped.ndim))


def _per_dimension(values: Sequence[int], spatial: int) -> tuple[int, ...]:
    return tuple(values) * spatial if len(values) == 1 else tuple(values)


def _layout(spatial: int) -> tuple[str, str, str]:
    letters = "DHW"[3 - spatial :]
    return f"N{letters}C", f"{letters}IO", f"N{letters}C"
