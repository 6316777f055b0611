"""Activation functions and their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import torch

from ._dtype import normal_axis, promoted, widened
from ._operand import Real
from ._table import lowers

aten = torch.ops.aten

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _pullback(function: Callable[[jax.Array], jax.Array], grad: jax.Array, x: jax.Array) -> jax.Array:
    """The gradient of an elementwise function; it is exact where the function has no kinks."""
    grad, x = promoted(grad, x, floating=True)
    return jax.vjp(function, x)[1](grad)[0]


@lowers(aten.gelu.default)
def _gelu(x: jax.Array, approximate: str = "none") -> jax.Array:
    x = widened(x)
    if approximate == "tanh":
        return 0.5 * x * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    return x * 0.5 * (1 + jax.lax.erf(x * math.sqrt(0.5)))


@lowers(aten.gelu_backward.default)
def _gelu_backward(grad: jax.Array, x: jax.Array, approximate: str = "none") -> jax.Array:
    # by hand: what differentiation makes of the forward has twice the operations
    grad, x = promoted(grad, x, floating=True)
    if approximate == "tanh":
        slope = math.sqrt(2 / math.pi)
        square = x * x
        tanh = jnp.tanh(slope * x * (1 + 0.044715 * square))
        inner = slope + (3 * 0.044715 * slope) * square
        return 0.5 * grad * ((1 + tanh) + x * (1 - tanh * tanh) * inner)
    density = jnp.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    return grad * (0.5 * (1 + jax.lax.erf(x * math.sqrt(0.5))) + x * density)


@lowers(aten.silu.default)
def _silu(x: jax.Array) -> jax.Array:
    x = widened(x)
    return x * jax.nn.sigmoid(x)


@lowers(aten.silu_backward.default)
def _silu_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    gate = jax.nn.sigmoid(x)
    return grad * gate * (1 + x * (1 - gate))


@lowers(aten.mish.default)
def _mish(x: jax.Array) -> jax.Array:
    x = widened(x)
    return x * jnp.tanh(jnp.log1p(jnp.exp(x)))


@lowers(aten.mish_backward.default)
def _mish_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    gate = jnp.tanh(jax.nn.softplus(x))
    return grad * (gate + x * jax.nn.sigmoid(x) * (1 - gate * gate))


@lowers(aten.elu.default)
def _elu(x: jax.Array, alpha: Real = 1, scale: Real = 1, input_scale: Real = 1) -> jax.Array:
    x = widened(x)
    return jnp.where(x > 0, x * scale, jnp.expm1(jnp.minimum(x, 0) * input_scale) * (alpha * scale))


@lowers(aten.elu_backward.default)
def _elu_backward(grad: jax.Array, alpha: Real, scale: Real, input_scale: Real, is_result: bool, x: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    if is_result:
        negative = grad * input_scale * (x + alpha * scale)
    else:
        negative = grad * (input_scale * alpha * scale) * jnp.exp(jnp.minimum(x, 0) * input_scale)
    return jnp.where(x <= 0, negative, grad * scale)


@lowers(aten.celu.default)
def _celu(x: jax.Array, alpha: Real = 1.0) -> jax.Array:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


@lowers(aten.selu.default)
def _selu(x: jax.Array) -> jax.Array:
    return _elu(x, _SELU_ALPHA, _SELU_SCALE)


@lowers(aten.leaky_relu.default)
def _leaky_relu(x: jax.Array, negative_slope: Real = 0.01) -> jax.Array:
    x = widened(x)
    return jnp.where(x > 0, x, x * negative_slope)


@lowers(aten.leaky_relu_backward.default)
def _leaky_relu_backward(grad: jax.Array, x: jax.Array, negative_slope: Real, self_is_result: bool) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where(x > 0, grad, grad * negative_slope)


@lowers(aten._prelu_kernel.default)
def _prelu(x: jax.Array, weight: jax.Array) -> jax.Array:
    x, weight = promoted(x, weight, floating=True)
    return jnp.where(x > 0, x, weight * x)


@lowers(aten._prelu_kernel_backward.default)
def _prelu_backward(grad: jax.Array, x: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    grad, x, weight = promoted(grad, x, weight, floating=True)
    return jnp.where(x > 0, grad, weight * grad), jnp.where(x > 0, 0, x * grad)


@lowers(aten.hardtanh.default)
def _hardtanh(x: jax.Array, min_val: Real = -1, max_val: Real = 1) -> jax.Array:
    return jnp.clip(x, jnp.asarray(min_val, x.dtype), jnp.asarray(max_val, x.dtype))


@lowers(aten.hardtanh_backward.default)
def _hardtanh_backward(grad: jax.Array, x: jax.Array, min_val: Real, max_val: Real) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where((x <= min_val) | (x >= max_val), 0, grad)


@lowers(aten.hardsigmoid.default)
def _hardsigmoid(x: jax.Array) -> jax.Array:
    return jnp.clip(widened(x) + 3, 0, 6) / 6


@lowers(aten.hardsigmoid_backward.default)
def _hardsigmoid_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where((x > -3) & (x < 3), grad / 6, 0)


@lowers(aten.hardswish.default)
def _hardswish(x: jax.Array) -> jax.Array:
    x = widened(x)
    return x * jnp.clip(x + 3, 0, 6) / 6


@lowers(aten.hardswish_backward.default)
def _hardswish_backward(grad: jax.Array, x: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where(x <= -3, 0, jnp.where(x < 3, grad * (x / 3 + 0.5), grad))


@lowers(aten.hardshrink.default)
def _hardshrink(x: jax.Array, lambd: Real = 0.5) -> jax.Array:
    x = widened(x)
    return jnp.where((x >= -lambd) & (x <= lambd), 0, x)


@lowers(aten.softshrink.default)
def _softshrink(x: jax.Array, lambd: Real = 0.5) -> jax.Array:
    x = widened(x)
    return jnp.where(x > lambd, x - lambd, jnp.where(x < -lambd, x + lambd, x * 0))


@lowers(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def _shrink_backward(grad: jax.Array, x: jax.Array, lambd: Real) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where((x >= -lambd) & (x <= lambd), 0, grad)


@lowers(aten.softplus.default)
def _softplus(x: jax.Array, beta: Real = 1, threshold: Real = 20) -> jax.Array:
    x = widened(x)
    scaled = x * beta
    return jnp.where(scaled > threshold, x, jnp.log1p(jnp.exp(jnp.minimum(scaled, threshold))) / beta)


@lowers(aten.softplus_backward.default)
def _softplus_backward(grad: jax.Array, x: jax.Array, beta: Real, threshold: Real) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return jnp.where(x * beta > threshold, grad, grad * jax.nn.sigmoid(x * beta))


@lowers(aten.log_sigmoid_forward.default)
def _log_sigmoid(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    wide = widened(x)
    small = jnp.exp(-jnp.abs(wide))
    # the CPU kernel hands exp(-|x|) to its derivative
    return jnp.minimum(wide, 0) - jnp.log1p(small), small


@lowers(aten.log_sigmoid_backward.default)
def _log_sigmoid_backward(grad: jax.Array, x: jax.Array, buffer: jax.Array) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    return grad * jax.nn.sigmoid(-x)


@lowers(aten.glu.default)
def _glu(x: jax.Array, dim: int = -1) -> jax.Array:
    value, gate = jnp.split(widened(x), 2, axis=normal_axis(dim, x.ndim))
    return value * jax.nn.sigmoid(gate)


@lowers(aten.glu_backward.default)
def _glu_backward(grad: jax.Array, x: jax.Array, dim: int) -> jax.Array:
    grad, x = promoted(grad, x, floating=True)
    value, gate = jnp.split(x, 2, axis=normal_axis(dim, x.ndim))
    gate = jax.nn.sigmoid(gate)
    return jnp.concatenate([grad * gate, grad * value * gate * (1 - gate)], axis=normal_axis(dim, x.ndim))
