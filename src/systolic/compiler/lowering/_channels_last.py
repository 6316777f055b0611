"""Images with the channel as their last dimension in memory, which is how convolutions run.

PyTorch's image ops are written for [N, C, H, W], XLA's (on the CPU: Eigen's) convolution works on [N, H, W, C]. A
convolution returns its result in that form, wrapped as `ChannelsLast`; ops that can go on with it do, all others get
the ordinary array. Shapes and dimension numbers that PyTorch announced always mean [N, C, H, W].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import torch
from jax.typing import DTypeLike
from torch import fx

from ...utilities._torch_internals import OpOverload
from ._table import Lowering

aten = torch.ops.aten

F = TypeVar("F", bound=Lowering)
T = TypeVar("T")


@jax.tree_util.register_pytree_node_class
class ChannelsLast:
    """A value [N, C, H, W] that is held as an array [N, H, W, C].

    Attributes:
        array: [N, H, W, C].
    """

    def __init__(self, array: jax.Array) -> None:
        assert array.ndim == 4, f"{array.shape} is not an image"
        self.array = array

    def tree_flatten(self) -> tuple[tuple[jax.Array], None]:
        """The array, for functions that JAX traces."""
        return (self.array,), None

    @classmethod
    def tree_unflatten(cls, _nothing: None, leaves: Sequence[Any]) -> ChannelsLast:
        """Around what JAX puts in the array's place."""
        made = cls.__new__(cls)
        (made.array,) = leaves
        return made

    @functools.cached_property
    def ordinary(self) -> jax.Array:
        """[N, C, H, W]."""
        return jnp.transpose(self.array, (0, 3, 1, 2))

    @property
    def shape(self) -> tuple[int, ...]:
        """As PyTorch has it."""
        count, height, width, channels = self.array.shape
        return count, channels, height, width

    @property
    def ndim(self) -> int:
        """Always 4."""
        return 4

    @property
    def dtype(self) -> Any:
        """Of the elements."""
        return self.array.dtype

    def astype(self, dtype: DTypeLike) -> ChannelsLast:
        """The same elements in another dtype."""
        return ChannelsLast(self.array.astype(dtype))


Value = jax.Array | ChannelsLast


def ordinary(value: object) -> Any:
    """Ordinary form of `value`, for an op that knows nothing of this module."""
    if isinstance(value, (tuple, list)):
        return type(value)(ordinary(v) for v in value)
    return value.ordinary if isinstance(value, ChannelsLast) else value


def channels_last(value: Value) -> ChannelsLast:
    """An image with its channel last."""
    return value if isinstance(value, ChannelsLast) else ChannelsLast(jnp.transpose(value, (0, 2, 3, 1)))


def alike(*values: Value) -> tuple[Value, ...]:
    """All of `values` with their channel last if one of them has it there."""
    mixed = any(isinstance(v, ChannelsLast) for v in values)
    return tuple(channels_last(v) for v in values) if mixed else values


def array_of(value: Value) -> jax.Array:
    """The array that holds an image, in whichever order."""
    return value.array if isinstance(value, ChannelsLast) else value


def held_like(array: jax.Array, model: Value) -> Value:
    """`array`, whose dimensions are ordered as those of the array in `model`, as a value."""
    return ChannelsLast(array) if isinstance(model, ChannelsLast) else array


def in_order_of(model: Value, per_dimension: Sequence[T]) -> tuple[T, ...]:
    """One thing per dimension (N, C, H, W), in the order that the array in `model` has its dimensions."""
    if not isinstance(model, ChannelsLast):
        return tuple(per_dimension)
    count, channels, height, width = per_dimension
    return count, height, width, channels


def spatial_axes(model: Value, spatial: int) -> tuple[int, ...]:
    """Spatial axes: the dimensions of the array in `model` that are the image's own."""
    end = model.ndim - isinstance(model, ChannelsLast)
    return tuple(range(end - spatial, end))


_TAKERS: set[Lowering] = set()


def takes_channels_last(function: F) -> F:
    """Mark a lowering that accepts `ChannelsLast` wherever an image is expected, and may return it."""
    _TAKERS.add(function)
    return function


def layout_aware(node: fx.Node, lowering: Lowering) -> Lowering | None:
    """The form of a node's lowering that takes `ChannelsLast` values, or None where it has none.

    A lowering that the user registered in place of ours has none: it is written for what PyTorch announced.
    """
    op = node.target
    assert isinstance(op, OpOverload)
    if lowering in _TAKERS:
        return lowering
    if not getattr(lowering, "__module__", "").startswith(str(__package__)):
        return None
    if torch.Tag.pointwise in op.tags or op in _POINTWISE:
        return functools.partial(_pointwise, lowering) if _gives_images(node.meta.get("val")) else None
    along = _ALONG.get(op)
    return None if along is None else functools.partial(along, lowering)


def _gives_images(announced: object) -> bool:
    if isinstance(announced, (tuple, list)):
        return all(_gives_images(a) for a in announced)
    return isinstance(announced, torch.Tensor) and announced.dim() == 4


def _pointwise(lowering: Lowering, *args: Any, **kwargs: Any) -> Any:
    operands = [a for a in (*args, *kwargs.values()) if isinstance(a, ChannelsLast)]
    if not operands:
        return lowering(*args, **kwargs)
    result = lowering(*map(_channel_at_end, args), **{k: _channel_at_end(v) for k, v in kwargs.items()})
    return tuple(map(ChannelsLast, result)) if isinstance(result, (tuple, list)) else ChannelsLast(result)


def _channel_at_end(operand: object) -> Any:
    """An operand that broadcasts against [N, C, H, W] as one that does against [N, H, W, C]."""
    if isinstance(operand, ChannelsLast):
        return operand.array
    if not isinstance(operand, jax.Array) or operand.ndim == 0:
        return operand
    if operand.ndim < 3:
        return operand[..., None]
    return jnp.moveaxis(operand, -3, -1)


def _axis(dim: int) -> int:
    """Index in [N, H, W, C] of a dimension of [N, C, H, W]."""
    return (0, 3, 1, 2)[dim]


def _reduced(lowering: Lowering, x: Value, dim: int | Sequence[int] | None = None, *args: Any, **kwargs: Any) -> Any:
    """Fold dimensions away; what is left must be in the order that PyTorch has it in."""
    if not isinstance(x, ChannelsLast):
        return lowering(x, dim, *args, **kwargs)
    dims = {d % 4 for d in ([dim] if isinstance(dim, int) else dim or range(4))}
    keeps = bool(kwargs.get("keepdim", args[0] if args else False))
    if not keeps and 1 not in dims and not dims >= {2, 3}:
        return lowering(x.ordinary, dim, *args, **kwargs)
    result = lowering(x.array, [_axis(d) for d in sorted(dims)], *args, **kwargs)
    if not keeps:
        return result
    return tuple(map(ChannelsLast, result)) if isinstance(result, tuple) else ChannelsLast(result)


def _sliced(lowering: Lowering, x: Value, dim: int = 0, *args: Any) -> Value:
    if not isinstance(x, ChannelsLast):
        return lowering(x, dim, *args)
    return ChannelsLast(lowering(x.array, _axis(dim), *args))


def _divided(lowering: Lowering, x: Value, sizes: int | Sequence[int], dim: int = 0) -> Sequence[Value]:
    if not isinstance(x, ChannelsLast):
        return lowering(x, sizes, dim)
    return tuple(map(ChannelsLast, lowering(x.array, sizes, _axis(dim))))


def _slice_gradient(lowering: Lowering, grad: Value, sizes: Sequence[int], dim: int, *args: Any) -> Value:
    if not isinstance(grad, ChannelsLast):
        return lowering(grad, sizes, dim, *args)
    return ChannelsLast(lowering(grad.array, in_order_of(grad, sizes), _axis(dim), *args))


def _joined(lowering: Lowering, values: Sequence[Value], dim: int = 0) -> Value:
    # an empty vector joins with anything, images too
    if not any(isinstance(v, ChannelsLast) for v in values) or any(v.ndim != 4 for v in values):
        return lowering([ordinary(v) for v in values], dim)
    return ChannelsLast(lowering([channels_last(v).array for v in values], _axis(dim)))


def _padded(lowering: Lowering, x: Value, pad: Sequence[int], *args: Any) -> Value:
    if not isinstance(x, ChannelsLast):
        return lowering(x, pad, *args)
    # pairs from the last dimension on: of width, height, channels, images
    pairs = [*pad, *(0,) * (8 - len(pad))]
    return ChannelsLast(lowering(x.array, [*pairs[4:6], *pairs[:4], *pairs[6:]], *args))


# PyTorch tags most of its pointwise ops as such; these it does not, mostly derivatives
_POINTWISE: frozenset[Any] = frozenset(
    {
        aten.alias.default, aten.contiguous.default, aten.detach.default, aten.lift.default, aten.lift_fresh.default,
        aten.lift_fresh_copy.default, aten._to_copy.default, aten._lazy_clone.default, aten.resolve_conj.default,
        aten.resolve_neg.default, aten.rsub.Tensor, aten._add_relu.Tensor, aten._add_relu.Scalar,
        aten.floor_divide.default, aten.floor_divide.Scalar, aten.where.ScalarOther, aten.where.ScalarSelf,
        aten.where.Scalar, aten.masked_fill.Tensor, aten.mish_backward.default, aten.elu_backward.default,
        aten.leaky_relu_backward.default, aten._prelu_kernel.default, aten._prelu_kernel_backward.default,
        aten.hardtanh_backward.default, aten.hardsigmoid_backward.default, aten.hardswish.default,
        aten.hardswish_backward.default, aten.hardshrink_backward.default, aten.softshrink_backward.default,
        aten.softplus_backward.default,
    }
)  # fmt: skip

_ALONG: dict[Any, Callable[..., Any]] = {
    aten.sum.dim_IntList: _reduced,
    aten.mean.dim: _reduced,
    aten.amax.default: _reduced,
    aten.amin.default: _reduced,
    aten.var.correction: _reduced,
    aten.var_mean.correction: _reduced,
    aten.std.correction: _reduced,
    aten.slice.Tensor: _sliced,
    aten.narrow.default: _sliced,
    aten.split.Tensor: _divided,
    aten.split_with_sizes.default: _divided,
    aten.slice_backward.default: _slice_gradient,
    aten.cat.default: _joined,
    aten.constant_pad_nd.default: _padded,
}
