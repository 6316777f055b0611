"""Random numbers. Each op draws from its own key, so that its numbers do not depend on the other ops' order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.typing import DTypeLike

from ...runtime import jax_dtype
from ._bits import keep_mask
from ._context import current
from ._operand import Real
from ._pullback import wide
from ._table import lowers

aten = torch.ops.aten


def _announced() -> tuple[tuple[int, ...], Any]:
    """Shape and dtype of the result."""
    output = current().output
    return tuple(output.shape), jax_dtype(output.dtype)


def _wide_dtype(dtype: DTypeLike) -> Any:
    """The float dtype to draw in: double for double and float32 for everything else."""
    return jnp.dtype(jnp.float64) if dtype in (jnp.float64, jnp.complex128) else jnp.dtype(jnp.float32)


def _uniform(shape: Sequence[int], dtype: DTypeLike) -> jax.Array:
    return jax.random.uniform(current().next_key(), tuple(shape), dtype)


@lowers(aten.rand.default, aten.rand.generator, aten.rand_like.default, aten.rand_like.generator)
def rand(*_: object, **__: object) -> jax.Array:
    """Uniform over [0, 1)."""
    shape, dtype = _announced()
    return _uniform(shape, dtype)


@lowers(aten.randn.default, aten.randn.generator, aten.randn_like.default, aten.randn_like.generator)
def randn(*_: object, **__: object) -> jax.Array:
    """Standard normal; complex numbers have variance one in total, as in PyTorch."""
    shape, dtype = _announced()
    return jax.random.normal(current().next_key(), shape, dtype)


@lowers(aten.bernoulli.default)
def bernoulli(p: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """One with probability `p`, elementwise."""
    p = wide(p)
    return _uniform(p.shape, p.dtype) < p


@lowers(aten.bernoulli.p)
def bernoulli_p(x: jax.Array, p: float = 0.5, generator: torch.Generator | None = None) -> jax.Array:
    """One with probability `p`, in the shape of `x`."""
    # a hash, not a generator: this is how dropout draws its mask on the CPU that steps are traced for
    return keep_mask(current().next_mask_key(), p, x.shape)


@lowers(aten.bernoulli.Tensor)
def bernoulli_tensor(x: jax.Array, p: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """One with probability `p`, in the shape of `x`."""
    p = wide(p)
    return _uniform(x.shape, p.dtype) < p


@lowers(aten.native_dropout.default)
def native_dropout(x: jax.Array, p: float, train: bool | None) -> tuple[jax.Array, jax.Array]:
    """Zero elements with probability `p`, scale the rest by 1 / (1 - p); also the mask of what was kept."""
    if train is False:
        return x, jnp.ones(x.shape, jnp.bool_)
    kept = keep_mask(current().next_mask_key(), 1.0 - p, x.shape)
    return native_dropout_backward(x, kept, 0.0 if p == 1 else 1 / (1 - p)), kept


@lowers(aten.native_dropout_backward.default)
def native_dropout_backward(grad: jax.Array, mask: jax.Array, scale: float) -> jax.Array:
    """`grad` where kept, scaled."""
    return (grad * mask.astype(grad.dtype)) * jnp.asarray(scale, grad.dtype)


@lowers(aten.uniform.default)
def uniform(
    x: jax.Array, low: float = 0.0, high: float = 1.0, generator: torch.Generator | None = None, **_: object
) -> jax.Array:
    """Uniform over [low, high) in the shape of `x`."""
    return jax.random.uniform(current().next_key(), x.shape, x.dtype, low, high)


def _normal(shape: Sequence[int], dtype: DTypeLike, mean: Real, std: Real) -> jax.Array:
    wider = dtype if jnp.issubdtype(dtype, jnp.complexfloating) else _wide_dtype(dtype)
    sample = jax.random.normal(current().next_key(), tuple(shape), wider)
    return sample * jnp.asarray(std, sample.dtype) + jnp.asarray(mean, sample.dtype)


@lowers(aten.normal_functional.default)
def normal_functional(x: jax.Array, mean: float = 0.0, std: float = 1.0, generator: torch.Generator | None = None) -> jax.Array:
    """Normal in the shape of `x`."""
    return _normal(x.shape, x.dtype, mean, std)


@lowers(aten.normal.Tensor_float, aten.normal.float_Tensor, aten.normal.Tensor_Tensor, aten.normal.float_float)
def normal(mean: Real, std: Real = 1.0, *_: object, **__: object) -> jax.Array:
    """Normal with the given mean and deviation, each a number or a tensor."""
    shape, dtype = _announced()
    return _normal(shape, dtype, mean, std)


def _open_uniform(x: jax.Array) -> jax.Array:
    """Uniform over (0, 1) in the shape of `x`: safe to take logarithms of."""
    dtype = _wide_dtype(x.dtype)
    return jax.random.uniform(current().next_key(), x.shape, dtype, jnp.finfo(dtype).tiny, 1.0)


@lowers(aten.exponential.default)
def exponential(x: jax.Array, lambd: float = 1.0, generator: torch.Generator | None = None) -> jax.Array:
    """Exponential with rate `lambd` in the shape of `x`."""
    return -jnp.log(_open_uniform(x)) / lambd


@lowers(aten.geometric.default)
def geometric(x: jax.Array, p: float, generator: torch.Generator | None = None) -> jax.Array:
    """How many trials of probability `p` it takes to succeed, in the shape of `x`."""
    if p == 1:
        return jnp.ones_like(x)
    return jnp.ceil(jnp.log(_open_uniform(x)) / math.log1p(-p))


@lowers(aten.cauchy.default)
def cauchy(x: jax.Array, median: float = 0.0, sigma: float = 1.0, generator: torch.Generator | None = None) -> jax.Array:
    """Cauchy in the shape of `x`."""
    return median + sigma * jnp.tan(math.pi * (_open_uniform(x) - 0.5))


@lowers(aten.log_normal.default)
def log_normal(x: jax.Array, mean: float = 1.0, std: float = 2.0, generator: torch.Generator | None = None) -> jax.Array:
    """Exponential of a normal, in the shape of `x`."""
    return jnp.exp(_normal(x.shape, _wide_dtype(x.dtype), mean, std))


@lowers(aten.poisson.default)
def poisson(rate: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """Poisson with rate `rate`, elementwise."""
    return jax.random.poisson(current().next_key(), wide(rate), rate.shape, jnp.int32)


@lowers(aten.binomial.default)
def binomial(count: jax.Array, prob: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """How many of `count` trials of probability `prob` succeed, elementwise."""
    return jax.random.binomial(current().next_key(), wide(count), wide(prob), dtype=wide(prob).dtype)


@lowers(aten._standard_gamma.default)
def standard_gamma(alpha: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """Gamma with shape parameter `alpha` and scale one, elementwise."""
    alpha = wide(alpha)
    return jax.random.gamma(current().next_key(), alpha, alpha.shape, alpha.dtype)


@lowers(aten._standard_gamma_grad.default)
def standard_gamma_grad(alpha: jax.Array, sample: jax.Array) -> jax.Array:
    """How a gamma sample moves with its shape parameter."""
    gradient: Any = jax.lax.random_gamma_grad  # JAX's type stub asks for an argument that the function lacks
    return gradient(wide(alpha), wide(sample))


@lowers(aten._sample_dirichlet.default)
def sample_dirichlet(alpha: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """Dirichlet with concentrations `alpha` along the last dimension."""
    alpha = wide(alpha)
    return jax.random.dirichlet(current().next_key(), alpha, alpha.shape[:-1], dtype=alpha.dtype)


def _integers(low: int | jax.Array, high: int | jax.Array) -> jax.Array:
    """Integers from [low, high), which may be values of the step, in the announced shape."""
    shape, _ = _announced()
    if isinstance(low, int) and isinstance(high, int):
        dtype = jnp.int32 if low >= -(2**31) and high <= 2**31 - 1 else jnp.int64
        return jax.random.randint(current().next_key(), shape, low, high, dtype)
    low, high = jnp.asarray(low, jnp.int64), jnp.asarray(high, jnp.int64)
    current().checks.in_range(current(), high - low, 1, 2**63 - 1, None, "the width of the range", "randint")
    return jax.random.randint(current().next_key(), shape, low, high, jnp.int64)


@lowers(aten.randint.default, aten.randint.generator)
def randint(high: int | jax.Array, *_: object, **__: object) -> jax.Array:
    """Integers from [0, high)."""
    return _integers(0, high)


@lowers(aten.randint.low, aten.randint.low_generator)
def randint_low(low: int | jax.Array, high: int | jax.Array, *_: object, **__: object) -> jax.Array:
    """Integers from [low, high)."""
    return _integers(low, high)


@lowers(aten.randint_like.default, aten.randint_like.generator)
def randint_like(x: jax.Array, high: int | jax.Array, **_: object) -> jax.Array:
    """Integers from [0, high) in the shape of `x`."""
    return _integers(0, high)


@lowers(aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype)
def randint_like_low(x: jax.Array, low: int | jax.Array, high: int | jax.Array, **_: object) -> jax.Array:
    """Integers from [low, high) in the shape of `x`."""
    return _integers(low, high)


@lowers(aten.random.default)
def random(x: jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """Integers from zero to the largest one up to which the dtype holds every integer."""
    return _integers(0, _integer_limit(x.dtype))


@lowers(aten.random.to)
def random_to(x: jax.Array, to: int | jax.Array, generator: torch.Generator | None = None) -> jax.Array:
    """Integers from [0, to) in the shape of `x`."""
    return _integers(0, to)


@lowers(getattr(aten.random, "from"))
def random_from(
    x: jax.Array, low: int | jax.Array, to: int | jax.Array | None, generator: torch.Generator | None = None
) -> jax.Array:
    """Integers from [low, to) in the shape of `x`."""
    return _integers(low, _integer_limit(x.dtype) if to is None else to)


def _integer_limit(dtype: DTypeLike) -> int:
    """One past the largest integer that `random` without bounds draws; 64-bit integers stop one short of it."""
    if dtype == jnp.bool_:
        return 2
    if jnp.issubdtype(dtype, jnp.floating):
        return 2 ** (jnp.finfo(dtype).nmant + 1) + 1
    return min(int(jnp.iinfo(dtype).max), 2**63 - 2) + 1


@lowers(aten.randperm.default, aten.randperm.generator)
def randperm(n: int, *_: object, **__: object) -> jax.Array:
    """The integers below `n` in random order."""
    return jax.random.permutation(current().next_key(), jnp.arange(n, dtype=jnp.int32 if n < 2**31 else jnp.int64))


@lowers(aten.multinomial.default)
def multinomial(
    weights: jax.Array, num_samples: int, replacement: bool = False, generator: torch.Generator | None = None
) -> jax.Array:
    """Positions along the last dimension, drawn in proportion to `weights`."""
    scores = jnp.log(wide(weights))
    if replacement:
        spread = jnp.expand_dims(scores, -2)
        noise = jax.random.gumbel(current().next_key(), (*scores.shape[:-1], num_samples, scores.shape[-1]), scores.dtype)
        return jnp.argmax(spread + noise, -1)
    # the largest of perturbed log-weights are a sample without replacement
    noise = jax.random.gumbel(current().next_key(), scores.shape, scores.dtype)
    return jax.lax.top_k(scores + noise, num_samples)[1]


@lowers(aten.rrelu_with_noise_functional.default)
def rrelu_with_noise(
    x: jax.Array,
    noise: jax.Array,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Leaky ReLU with a random slope for each negative element; also the slopes."""
    if not training:
        return jnp.where(x > 0, x, x * jnp.asarray((lower + upper) / 2, x.dtype)), noise
    slopes = jax.random.uniform(current().next_key(), x.shape, jnp.float32, lower, upper).astype(x.dtype)
    slopes = jnp.where(x <= 0, slopes, jnp.ones((), x.dtype))
    return x * slopes, slopes


@lowers(aten.rrelu_with_noise_backward.default)
def rrelu_with_noise_backward(
    grad: jax.Array, x: jax.Array, noise: jax.Array, lower: float, upper: float, training: bool, self_is_result: bool
) -> jax.Array:
    """`grad` times each element's slope."""
    if training and upper - lower > 1e-6:
        return grad * noise
    return jnp.where(x > 0, grad, grad * jnp.asarray((lower + upper) / 2, grad.dtype))
