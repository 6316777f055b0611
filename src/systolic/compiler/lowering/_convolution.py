"""Convolutions, plain and transposed, of one to three spatial dimensions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import torch
from jax import lax

from ._channels_last import ChannelsLast, Value, ordinary, takes_channels_last
from ._column_sums import total
from ._context import current
from ._made_once import made_once
from ._pooling import per_dimension
from ._pullback import pullback, wide
from ._table import lowers
from ._winograd import winograd, winograd_image_gradient, winograd_weight_gradient, winograd_wins

aten = torch.ops.aten

# each place of a kernel that is summed over adds to the time that XLA takes to compile
_MOST_TAPS = 64
# bytes of what all places of a result see, which a product over three dimensions has in memory
_MOST_SEEN = 2**26


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
    image, kernel = _entering(x), ordinary(weight)
    steps = [per_dimension(v, kernel.ndim - 2) for v in (stride, padding, dilation)]
    if _is_simple(steps, transposed, groups) and winograd_wins(image, kernel, steps[1]):
        out = winograd(image, kernel, steps[1])
        return _leaving(out if bias is None else out + bias)
    narrow = image.shape[1:-1] if transposed else _sizes(image.shape[1:-1], kernel, *steps)
    by_product = _product_wins(image.shape[0], image.shape[1:-1], narrow, kernel, groups)
    out = _convolve(image, kernel, stride, padding, dilation, transposed, output_padding, groups, by_product)
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
    moved, image, kernel = _entering(grad), _entering(x), ordinary(weight)
    options = (stride, padding, dilation, transposed, output_padding, groups)
    grad_x = grad_weight = grad_bias = None
    steps = [per_dimension(v, kernel.ndim - 2) for v in (stride, padding, dilation)]
    by_winograd = _is_simple(steps, transposed, groups) and winograd_wins(image, kernel, steps[1])
    if _taps_win(image, kernel, transposed, groups):
        moved = _kept(moved, kernel)
        grad_x = _leaving(_depthwise_image_gradient(moved, image, kernel, *steps)) if output_mask[0] else None
        grad_weight = _depthwise_weight_gradient(moved, image, kernel, *steps) if output_mask[1] else None
    else:
        if current().platform == "cpu" and output_mask[1]:
            # XLA would compute the whole chain of residual blocks before this one again, while it transposes
            image, moved = _kept(image, kernel), _kept(moved, kernel)
        narrow = (image if transposed else moved).shape[1:-1]
        if output_mask[0] and by_winograd:
            grad_x = _leaving(winograd_image_gradient(moved, kernel, steps[1]))
        elif output_mask[0]:
            by_product = _product_wins(image.shape[0], moved.shape[1:-1], narrow, kernel, groups)
            grad_x = _leaving(pullback(lambda image: _convolve(image, kernel, *options, by_product), (image,), moved)[0])
        if output_mask[1] and by_winograd and winograd_wins(image, kernel, steps[1], of_weight=True):
            grad_weight = winograd_weight_gradient(image, moved, steps[1])
        elif output_mask[1] and _dots_win(kernel, groups):
            # a transposed convolution is the adjoint of one from its output to its input
            source, result = (moved, image) if transposed else (image, moved)
            grad_weight = _weight_gradient(source, result, kernel, stride, padding, dilation, groups)
        elif output_mask[1]:
            by_product = _product_wins(image.shape[0], None, narrow, kernel, groups)
            grad_weight = pullback(lambda kernel: _convolve(image, kernel, *options, by_product), (kernel,), moved)[0]
    if output_mask[2]:
        grad_bias = total(wide(moved), range(moved.ndim - 1)).astype(moved.dtype)
    return grad_x, grad_weight, grad_bias


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
    by_product: bool,
) -> jax.Array:
    """`x` [N, ..., C] with a weight as PyTorch has it; `by_product` is of ways to the same result."""
    spatial = x.ndim - 2
    stride, padding, dilation, output_padding = (per_dimension(v, spatial) for v in (stride, padding, dilation, output_padding))
    if _taps_win(x, weight, transposed, groups):
        return _depthwise(x, weight, stride, padding, dilation)
    if by_product and not transposed:
        return _as_product(x, weight, _sizes(x.shape[1:-1], weight, stride, padding, dilation), stride, padding, dilation)
    if by_product:
        sizes = _spread_sizes(x.shape[1:-1], weight, stride, padding, dilation, output_padding)
        whole = jax.ShapeDtypeStruct((x.shape[0], *sizes, weight.shape[1]), x.dtype)
        return jax.linear_transpose(lambda y: _as_product(y, weight, x.shape[1:-1], stride, padding, dilation), whole)(x)[0]
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


def _is_simple(steps: Sequence[Sequence[int]], transposed: bool, groups: int) -> bool:
    """Whether stride and dilation, the first and last of `steps`, are 1, and every result sees all channels."""
    return not transposed and groups == 1 and {*steps[0], *steps[2]} == {1}


def _taps_win(x: jax.Array, weight: jax.Array, transposed: bool, groups: int) -> bool:
    """Whether a convolution is faster as a sum over the places of its kernel.

    XLA's CPU backend runs a depthwise convolution as a plain loop, and its gradients as plain loops over the spread
    image; the sum becomes one vectorised loop that is 3 to 30 times as fast.
    """
    if current().platform != "cpu" or transposed or not 1 < groups == x.shape[-1]:
        return False
    return math.prod(weight.shape[2:]) <= _MOST_TAPS


def _dots_win(weight: jax.Array, groups: int) -> bool:
    """Whether the gradient of the weight is faster as a matrix product for each place of the kernel.

    Its general form is a convolution with a kernel as large as the image, which Eigen runs at full speed unless the
    result is a single place (then the product takes a third of the time); with groups XLA's CPU backend has no fast
    form of it at all.
    """
    return current().platform == "cpu" and (groups > 1 or math.prod(weight.shape[2:]) == 1)


def _product_wins(batch: int, read: Sequence[int] | None, narrow: Sequence[int], weight: jax.Array, groups: int) -> bool:
    """Whether a convolution is faster as one matrix product of what each place of the result sees.

    XLA's CPU backend has a plain loop where it reads an image of fewer places than the kernel: 512 channels of 2 x 2 take
    134 ms where the product takes 2. Over three dimensions it is three to five times as slow as the product. And where the
    weight is larger than the images, the product, with its gradients, takes between a third and all of the time.

    Args:
        batch: how many images there are.
        read: sizes of the image that is read; None for the gradient of the weight, which reads two.
        narrow: sizes of the image with a place for each row of the product.
        weight: [out, in, ...], of a transposed convolution [in, out, ...].
        groups: of channels.
    """
    if current().platform != "cpu" or groups > 1:
        return False
    rows, taps = batch * math.prod(narrow), math.prod(weight.shape[2:])
    is_plain_loop = read is not None and math.prod(read) < taps
    is_seen_at_once = rows * taps * weight.shape[1] * 4 <= _MOST_SEEN
    return is_plain_loop or _weight_is_larger(rows, weight) or (len(narrow) == 3 and is_seen_at_once)


def _weight_is_larger(rows: int, weight: jax.Array) -> bool:
    """Whether `weight` [out, in, ...] is, about, larger than the table of what so many places see."""
    return rows <= 2 * weight.shape[0]


def _sizes(
    places: Sequence[int], weight: jax.Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """How large the result of a convolution over so many places is."""
    dimensions = zip(places, padding, dilation, weight.shape[2:], stride, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, p, d, k, s in dimensions]


def _spread_sizes(
    places: Sequence[int],
    weight: jax.Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    output_padding: Sequence[int],
) -> list[int]:
    """The same of a transposed convolution."""
    dimensions = zip(places, padding, dilation, weight.shape[2:], stride, output_padding, strict=True)
    return [(n - 1) * s - 2 * p + d * (k - 1) + 1 + extra for n, p, d, k, s, extra in dimensions]


def _as_product(
    x: jax.Array,
    weight: jax.Array,
    out: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> jax.Array:
    """A convolution with `weight` [out, in, ...] as a product of all that each place of the result sees."""
    seen = list(_taps(wide(x), weight.shape[2:], out, stride, padding, dilation))
    rows, columns = x.shape[0] * math.prod(out), math.prod(weight.shape[1:])
    if _weight_is_larger(rows, weight):
        # what is seen is put in the weight's order, the larger of the two stays as it lies
        table, factors = jnp.stack(seen, -1), wide(weight)
    else:
        table, factors = jnp.concatenate(seen, -1), jnp.moveaxis(wide(weight), 1, -1)
    product = lax.dot_general(table.reshape(rows, columns), factors.reshape(-1, columns), (((1,), (1,)), ((), ())))
    return product.reshape(x.shape[0], *out, weight.shape[0]).astype(x.dtype)


def _taps(
    x: jax.Array,
    kernel: Sequence[int],
    out: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[jax.Array]:
    """Taps of a convolution: the part of `x` [N, ..., C] that each place of the kernel sees, as arrays [N, *out, C]."""
    padded = jnp.pad(x, [(0, 0), *((p, p) for p in padding), (0, 0)])
    for place in itertools.product(*map(range, kernel)):
        start = [i * d for i, d in zip(place, dilation, strict=True)]
        end = [first + (n - 1) * s + 1 for first, n, s in zip(start, out, stride, strict=True)]
        yield lax.slice(padded, (0, *start, 0), (x.shape[0], *end, x.shape[-1]), (1, *stride, 1))


def _depthwise(
    x: jax.Array, weight: jax.Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> jax.Array:
    """A convolution of each channel with its own kernels: `weight` [C * multiplier, 1, ...]."""
    channels, _, *kernel = weight.shape
    spread = jnp.repeat(wide(x), channels // x.shape[-1], axis=-1)
    out = _sizes(x.shape[1:-1], weight, stride, padding, dilation)
    seen = _taps(spread, kernel, out, stride, padding, dilation)
    factors = wide(weight).reshape(channels, -1).T
    total = sum(part * factor for part, factor in zip(seen, factors, strict=True))
    return _kept(jnp.asarray(total, x.dtype), weight)


def _depthwise_image_gradient(
    grad: jax.Array, x: jax.Array, weight: jax.Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> jax.Array:
    """The gradient of `x` [N, ..., C] from the result's `grad` [N, ..., C * multiplier].

    The adjoint of `_depthwise`'s slices would be a sum of padded images, which XLA makes one by one. Spread by the
    stride, `grad` is convolved with the mirrored kernel instead: slices again, and one loop.
    """
    inside = []
    for n, out, p, d, k, s in zip(x.shape[1:-1], grad.shape[1:-1], padding, dilation, weight.shape[2:], stride, strict=True):
        inside.append((d * (k - 1) - p, n + p - (out - 1) * s - 1, s - 1))
    spread = lax.pad(wide(grad), jnp.zeros((), wide(grad).dtype), [(0, 0, 0), *inside, (0, 0, 0)])
    no_steps, no_padding = (1,) * len(inside), (0,) * len(inside)
    whole = _depthwise(spread, _mirrored(weight, weight.shape[0]), no_steps, no_padding, dilation)
    return _grouped(whole, x.shape[-1]).sum(-1).astype(x.dtype)


def _kept(image: jax.Array, weight: jax.Array) -> jax.Array:
    """An image that is kept, as what other convolutions take and give is.

    A sum of taps is cheap arithmetic to XLA: a batch normalisation and its gradient would compute it seven times. What is
    asked is of a weight, since every core has it.
    """
    return made_once(image, jnp.real(weight[(0,) * weight.ndim]) > 0)


def _depthwise_weight_gradient(
    grad: jax.Array, x: jax.Array, weight: jax.Array, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> jax.Array:
    """The gradient of `weight` [C * multiplier, 1, ...]: all places of the kernel in one pass over the two images.

    Summed along rows first, then over what is left of an image, then over the images: a third of the time of one sum,
    and its rounding errors are those of the longest of the three. The last is an ordinary sum, since XLA gathers what a
    sum of many arrays at once is to add up over the cores.
    """
    spread = jnp.repeat(wide(x), weight.shape[0] // x.shape[-1], axis=-1)
    seen = _taps(spread, weight.shape[2:], grad.shape[1:-1], stride, padding, dilation)
    sums = [part * wide(grad) for part in seen]
    for axes in filter(None, ((grad.ndim - 2,), tuple(range(1, grad.ndim - 2)))):
        zeros = [jnp.zeros((), one.dtype) for one in sums]
        sums = lax.reduce(sums, zeros, lambda ours, theirs: [a + b for a, b in zip(ours, theirs, strict=True)], axes)
    return jnp.stack(sums, -1).sum(0).reshape(weight.shape).astype(weight.dtype)


def _weight_gradient(
    x: jax.Array,
    grad: jax.Array,
    weight: jax.Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> jax.Array:
    """The gradient of `weight` [out, in / groups, ...] from `x` [N, ..., in] and the result's `grad` [N, ..., out]."""
    kernel, out = weight.shape[2:], grad.shape[1:-1]
    stride, padding, dilation = (per_dimension(v, len(kernel)) for v in (stride, padding, dilation))
    moved = _grouped(wide(grad), groups)
    everywhere, group = tuple(range(grad.ndim - 1)), (grad.ndim - 1,)
    products = [
        lax.dot_general(moved, _grouped(part, groups), ((everywhere, everywhere), (group, group)))
        for part in _taps(wide(x), kernel, out, stride, padding, dilation)
    ]
    return jnp.stack(products, -1).reshape(weight.shape).astype(weight.dtype)


def _grouped(x: jax.Array, groups: int) -> jax.Array:
    """[N, ..., C] as [N, ..., groups, C / groups]."""
    return x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)


def _kernel_first(weight: jax.Array) -> jax.Array:
    """[out, in, ...] as [..., in, out]."""
    return jnp.moveaxis(weight, (1, 0), (-2, -1))


def _mirrored(weight: jax.Array, groups: int) -> jax.Array:
    """A transposed convolution's weight [in, out / groups, ...] as [out, in / groups, ...], kernel reversed."""
    channels_in, channels_out, *kernel = weight.shape
    grouped = weight.reshape(groups, channels_in // groups, channels_out, *kernel)
    swapped = jnp.swapaxes(grouped, 1, 2).reshape(groups * channels_out, channels_in // groups, *kernel)
    return jnp.flip(swapped, range(2, swapped.ndim))


def _layout(spatial: int) -> tuple[str, str, str]:
    letters = "DHW"[3 - spatial :]
    return f"N{letters}C", f"{letters}IO", f"N{letters}C"
