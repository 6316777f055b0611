"""Random bits for masks: a hash of the element's number, so cheap that XLA fuses it into what uses the mask.

JAX's generators cost 14 to 25% of a small GPT's step on a CPU, and write the bits to memory. A mask needs much less:
every element's bits are two rounds of a 32-bit integer finaliser (xor-shift, multiply, xor-shift, multiply,
xor-shift; constants: Chris Wellons, "Prospecting for Hash Functions", 2018, `lowbias32`) over its number and the key.
The result does not depend on how an array is split over devices. Not for sampling values: `jax.random` does that.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


def mask_key(key: jax.Array, number: int | jax.Array) -> jax.Array:
    """A key for `keep_mask` from a program's key: two words that differ for every `number`.

    Mixing in a constant costs two scalar operations, `jax.random.fold_in` a whole generator.

    Args:
        key: a typed JAX key, or its key data (uint32).
        number: which of the program's masks it is for; an array (uint32) in a loop over layers, with the same result.
    """
    data = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    words = data.reshape(-1).astype(jnp.uint32)
    low, high = (_scattered(number * 2 + half) for half in (0, 1))
    return jnp.stack([words[0] ^ low, words[-1] + high])


def _scattered(number: int | jax.Array) -> np.uint32 | jax.Array:
    """32 bits that look random, of a small number: `_finalised`, for Python numbers without an operation."""
    if isinstance(number, jax.Array):
        return _finalised(number.astype(jnp.uint32) * np.uint32(0x9E3779B1) + np.uint32(1))
    bits = (number * 0x9E3779B1 + 1) % 2**32
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D % 2**32
    bits = (bits ^ (bits >> 15)) * 0x846CA68B % 2**32
    return np.uint32(bits ^ (bits >> 16))


def keep_mask(key: jax.Array, probability: float | jax.Array, shape: Sequence[int]) -> jax.Array:
    """True with `probability` for each element; independent over elements and keys.

    Args:
        key: from `mask_key`.
        probability: of True, in [0, 1].
        shape: the mask's shape.
    """
    if isinstance(probability, float) and probability >= 1.0:
        return jnp.ones(tuple(shape), jnp.bool_)
    return keeps(_hashed(key, tuple(shape)), probability)


def keep_mask_by_row(key: jax.Array, probability: float, shape: Sequence[int]) -> jax.Array:
    """`keep_mask` in which rows, not elements, are hashed with the key, and columns within their row: half the work.

    Where `halves_suffice`, two columns share the bits of one hash, those of one group of `PAIRED` that lie half of it apart:
    kernels make a tile of the mask from half as many hashes.

    Args:
        key: from `mask_key`.
        probability: of True, in [0, 1].
        shape: the mask's shape, one dimension at least; rows lie along the last one.
    """
    if probability >= 1.0:
        return jnp.ones(tuple(shape), jnp.bool_)
    # a barrier, since XLA would compute a row's hash again for each of its elements
    rows = lax.optimization_barrier(_hashed(key, tuple(shape[:-1])))[..., None]
    # as constants: XLA would compute them again for each element
    column = np.arange(shape[-1], dtype=np.uint32)
    if not halves_suffice(probability):
        return keeps(row_bits(rows, jnp.asarray(column)), probability)
    group, place = np.divmod(column, np.uint32(PAIRED))
    half, place = np.divmod(place, np.uint32(PAIRED // 2))
    first, second = row_halves(rows, jnp.asarray(group * np.uint32(PAIRED // 2) + place))
    return upper_half_keeps(jnp.where(jnp.asarray(half == 0), first, second), probability)


def row_bits(row: jax.Array, column: jax.Array) -> jax.Array:
    """32 random bits for each column (its number) of a row (its hash); all uint32.

    The column is scattered before, so that rows whose hashes differ in a few low bits are not each other's permutations.
    """
    return _finalised(_in_row(row, column))


def row_halves(row: jax.Array, column: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The lower and the upper half of `row_bits`, each as the upper half of 32 bits of which the others say nothing.

    The finaliser's last step changes the lower half only, so that the upper one does without.
    """
    bits = _mixed(_in_row(row, column))
    return (bits << np.uint32(16)) ^ bits, bits


def _in_row(row: jax.Array, column: jax.Array) -> jax.Array:
    return row ^ (column * np.uint32(0x9E3779B1))


def keeps(bits: jax.Array, probability: float | jax.Array) -> jax.Array:
    """True with `probability`, for random uint32 bits."""
    # 24 bits: exactly representable in float32, so that the comparison is exact, too
    drawn = bits >> np.uint32(8)
    if isinstance(probability, float):
        # the same comparison, without turning the bits into floats: there are fewer thresholds than floats
        return drawn < np.uint32(_kept_of(2**24, probability))
    return drawn.astype(jnp.float32) < jnp.float32(probability) * jnp.float32(2**24)


PAIRED = 16
"""Of so many columns the first half shares hashes with the second; tiles of a mask hold whole groups."""

_SHARES = 2**16


def halves_suffice(probability: float) -> bool:
    """Whether 16 bits say how many are kept and how many are not, to a thousandth of either."""
    kept = _kept_of(_SHARES, probability)
    asked = probability * _SHARES
    return abs(kept - asked) <= 1e-3 * min(asked, _SHARES - asked)


def upper_half_keeps(bits: jax.Array, probability: float) -> jax.Array:
    """True with `probability`, for uint32 bits of which the upper 16 are random.

    The bits are compared as signed numbers, which is one instruction of a TPU, and does not need the lower ones cut off.
    """
    threshold = _kept_of(_SHARES, probability) * 2**16 - 2**31
    return lax.bitcast_convert_type(bits, jnp.int32) < np.int32(min(threshold, 2**31 - 1))


def _kept_of(shares: int, probability: float) -> int:
    return int(np.ceil(np.float32(probability) * np.float32(shares)))


def _hashed(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return hashed(_numbers(shape), key[0], key[1])


def hashed(number: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
    """32 random bits for each number under a key's two words (all uint32)."""
    return _finalised(_finalised(number ^ first) + second)


def _numbers(shape: tuple[int, ...]) -> jax.Array:
    """A number for every element: its position, computed from one iota per dimension so that it can be split."""
    number = jnp.zeros(shape, jnp.uint32)
    stride = 1
    for axis in range(len(shape) - 1, -1, -1):
        # beyond 2**32 elements the stride wraps: mix it, so that far elements do not repeat near ones
        factor = stride if stride < 2**32 else stride * 0x9E3779B1
        number = number + lax.broadcasted_iota(jnp.uint32, shape, axis) * np.uint32(factor % 2**32)
        stride *= shape[axis]
    return number


def _finalised(bits: jax.Array) -> jax.Array:
    bits = _mixed(bits)
    return bits ^ (bits >> np.uint32(16))


def _mixed(bits: jax.Array) -> jax.Array:
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D)
    return (bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B)
