"""A random key as a tensor, for ops that draw random numbers in JAX."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import torch

from ...utilities._torch_internals import functorch_level
from ..lowering import lowers
from ..lowering._bits import keep_mask, keep_mask_by_row, mask_key
from ..lowering._context import current

WORDS = 4

_LIBRARY = torch.library.Library("systolic", "FRAGMENT")
_LIBRARY.define("next_key() -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


def next_key() -> torch.Tensor:
    """Key data that no other random op gets: uint32[4], for `bernoulli`."""
    # by an op whose draws `torch.vmap` knows to refuse, to share or to make one for each element, as its caller asks
    return torch.ops.systolic.next_key.default() if functorch_level() is None else _drawn()


def _drawn() -> torch.Tensor:
    return torch.randint(0, 2**32, (WORDS,), dtype=torch.int64).to(torch.uint32)


@torch.library.impl(_LIBRARY, "next_key", "CompositeExplicitAutograd")
def _draw_on_cpu() -> torch.Tensor:
    return _drawn()


@torch.library.register_fake("systolic::next_key", lib=_LIBRARY)
def _fake() -> torch.Tensor:
    return torch.empty(WORDS, dtype=torch.uint32, device="cpu")


@lowers(torch.ops.systolic.next_key.default)
def _lower() -> jax.Array:
    return jnp.resize(jax.random.key_data(current().next_key()), (WORDS,))


def bernoulli(draw: jax.Array, probability: float, shape: Sequence[int], number: int = 0) -> jax.Array:
    """Booleans that are true with `probability`, from key data; another `number` gives other ones."""
    return keep_mask(mask_key(draw, number), probability, shape)


def bernoulli_by_row(draw: jax.Array, probability: float, shape: Sequence[int]) -> jax.Array:
    """`bernoulli` as `keep_mask_by_row` draws it: cheaper where rows are long."""
    return keep_mask_by_row(mask_key(draw, 0), probability, shape)
