from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from systolic.compiler.kernels._mixed_product import mixed_product

SCORES = "...qd,...kd->...qk"


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    return jnp.tanh(mixed_product(SCORES, left, right)).sum()


@pytest.mark.tables
@pytest.mark.thin(3)
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 1, 5, 4), (3, 5, 4), (5, 4)])
def test_gradients_of_all_orders_are_those_of_einsum(shape: tuple[int, ...]) -> None:
    def plain(left: jax.Array, right: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.einsum(SCORES, left, right)).sum()

    def penalty(function: object) -> object:
        return lambda *both: sum((g**2).sum() for g in jax.grad(function, (0, 1))(*both))  # type: ignore[arg-type]

    keys = jax.random.split(jax.random.key(0))
    operands = jax.random.normal(keys[0], (2, 3, 6, 4)), jax.random.normal(keys[1], shape)
    for ours, theirs in ((product, plain), (penalty(product), penalty(plain))):
        for mine, wanted in zip(jax.grad(ours, (0, 1))(*operands), jax.grad(theirs, (0, 1))(*operands), strict=True):  # type: ignore[arg-type]
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-5)


def test_every_product_is_of_narrow_operands_with_wide_sums() -> None:
    left, right = jnp.ones((3, 6, 4), jnp.bfloat16), jnp.ones((3, 5, 4), jnp.bfloat16)
    program = jax.jit(jax.grad(product, (0, 1))).lower(left, right).as_text()
    kinds = re.findall(r"dot_general.*: \(tensor<[\dx]*(\w+)>, tensor<[\dx]*(\w+)>\) -> tensor<[\dx]*(\w+)>", program)
    assert kinds == [("bf16", "bf16", "f32")] * 3


def test_gradients_have_the_operands_dtypes() -> None:
    left, right = jnp.ones((6, 4), jnp.float32), jnp.ones((5, 4), jnp.bfloat16)
    of_left, of_right = jax.grad(product, (0, 1))(left, right)
    assert (of_left.dtype, of_right.dtype) == (jnp.float32, jnp.bfloat16)
