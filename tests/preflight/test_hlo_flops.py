"""FLOPs of compiled products, against their mathematics, on programs of the real TPU compiler."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from systolic.preflight import parse_slice, slice_devices
from systolic.preflight._hlo import analyse

pytest.importorskip("libtpu")


def flops(function: Any, *shapes: tuple[int, ...]) -> int:
    sharding = jax.sharding.SingleDeviceSharding(slice_devices(parse_slice("v5litepod-1"))[0])
    arguments = [jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=sharding) for shape in shapes]
    text = jax.jit(function).lower(*arguments).compile().as_text()
    return sum(one.flops * one.times for one in analyse(text).operations)


def convolve(image: jax.Array, kernel: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(image, kernel, (2, 2), "VALID", dimension_numbers=numbers)


def test_products() -> None:
    assert flops(lambda a, b: jnp.tanh(a @ b), (256, 384), (384, 512)) == 2 * 256 * 384 * 512
    assert flops(lambda a, b: jnp.einsum("bik,bkj->bij", a, b), (8, 128, 256), (8, 256, 64)) == 2 * 8 * 128 * 256 * 64


def test_a_loop_counts_its_products_as_often_as_it_runs() -> None:
    def steps(a: jax.Array, b: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (jnp.tanh(carry @ b), None), a, length=7)[0]

    assert flops(steps, (256, 256), (256, 256)) == 7 * 2 * 256**3


def test_gradients_of_a_strided_convolution() -> None:
    image, kernel, out = (4, 33, 33, 128), (3, 3, 128, 128), (4, 16, 16, 128)

    def of_kernel(x: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda k: convolve(x, k), jnp.zeros(kernel, jnp.bfloat16))[1](g)[0]

    def of_image(k: jax.Array, g: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: convolve(x, k), jnp.zeros(image, jnp.bfloat16))[1](g)[0]

    forward = 2 * 4 * 16 * 16 * 9 * 128 * 128
    assert flops(of_kernel, image, out) == forward
    # for each pixel of the image instead of the output, and the taps on the zeros of the stride left out
    assert flops(of_image, kernel, out) == 2 * 4 * 33 * 33 * 9 * 128 * 128 // 4
