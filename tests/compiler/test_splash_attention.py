"""The TPU kernel in Pallas's interpreter on the CPU, against attention by its definition."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from systolic.compiler.kernels._attention import plain_attention
from systolic.compiler.kernels._splash_attention import splash_attention, splash_supports
from systolic.preflight import parse_slice, slice_devices

pytestmark = pytest.mark.thin(10)


def operands(heads: int, key_heads: int, lengths: tuple[int, int], features: int, dtype: str) -> list[jax.Array]:
    numbers = np.random.default_rng(0)
    shapes = [(2, heads, lengths[0], features), *[(2, key_heads, lengths[1], features)] * 2, (2, heads, lengths[0], features)]
    return [jnp.asarray(numbers.normal(size=shape), dtype) for shape in shapes]


CASES = [
    ("one block", 2, 2, (128, 128), 64, True),
    ("not causal", 2, 2, (128, 128), 32, False),
    ("several blocks", 1, 1, (384, 384), 64, True),
    ("other keys than queries", 1, 1, (128, 256), 64, False),
    ("causal with more keys than queries", 1, 1, (128, 256), 64, True),
    ("grouped queries", 4, 2, (128, 128), 64, True),
    ("an odd number of features", 1, 1, (128, 128), 72, True),
]


@pytest.mark.parametrize(
    ("heads", "key_heads", "lengths", "features", "causal"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_the_kernel_computes_attention_and_its_gradients(
    heads: int, key_heads: int, lengths: tuple[int, int], features: int, causal: bool
) -> None:
    *inputs, cotangent = operands(heads, key_heads, lengths, features, "float32")
    assert splash_supports(*inputs, None)
    scale = features**-0.5

    def plain(*x: jax.Array) -> jax.Array:
        return plain_attention(*x, None, None, causal=causal, scale=scale, dropout=0.0)

    def kernel(*x: jax.Array) -> jax.Array:
        return splash_attention(*x, causal=causal, scale=scale, mesh=None, interpret=True)

    # as the engine traces programs
    with jax.enable_x64(True):
        (expected, pull), (found, pull_kernel) = (jax.jit(jax.vjp, static_argnums=0)(f, *inputs) for f in (plain, kernel))
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
        for got, want in zip(pull_kernel(cotangent), pull(cotangent), strict=True):
            np.testing.assert_allclose(got, want, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize(
    "shapes",
    [[(2, 2, 100, 64)] * 3, [(2, 128, 64)] * 3, [(2, 3, 128, 64), (2, 2, 128, 64), (2, 2, 128, 64)], [(1, 1, 128, 512)] * 3],
    ids=["length", "rank", "heads", "features"],
)
def test_what_the_kernel_does_not_know_is_left_to_the_plain_form(shapes: list[tuple[int, ...]]) -> None:
    assert not splash_supports(*[jnp.zeros(shape, jnp.bfloat16) for shape in shapes], None)


@pytest.mark.parametrize(("topology", "supported"), [("v5e:2x2", True), ("v3:2x2", False)])
def test_chips_without_kernels_get_the_plain_form(topology: str, supported: bool) -> None:
    pytest.importorskip("libtpu")
    devices = slice_devices(parse_slice(topology))  # not JAX's own way: libtpu's timers would end this process later
    inputs = [jnp.zeros((4, 2, 128, 64), jnp.bfloat16)] * 3
    assert splash_supports(*inputs, Mesh(np.array(devices), ("data",))) == supported
