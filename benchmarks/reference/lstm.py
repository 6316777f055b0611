"""A language model of two LSTM layers in JAX and optax, as one would write it for TPU.

The products of a layer's inputs are one for all tokens, and the loop over time has those of its state only; bfloat16 compute,
cells in float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh

from .parts import Params, adamw_step, dense, dense_shapes, dropout, float32


@dataclass(frozen=True)
class Sizes:
    """The model with a batch per core."""

    layers: int = 2
    width: int = 512
    length: int = 128
    vocabulary: int = 10_000
    batch: int = 64
    dropout: float = 0.2
    dtype: Any = jnp.bfloat16


def shapes(sizes: Sizes) -> Params:
    """The parameters, as shapes; the four gates are input, forget, cell, output, as PyTorch has them."""
    width = sizes.width
    layer = {"input": dense_shapes(width, 4 * width), "state": dense_shapes(width, 4 * width)}
    return {
        "tokens": float32(sizes.vocabulary, width),
        "layers": [layer] * sizes.layers,
        "head": dense_shapes(width, sizes.vocabulary),
    }


def _layer(p: Params, x: jax.Array) -> jax.Array:
    """The hidden states [length, batch, width] for inputs of the same shape."""
    gates = dense(p["input"], x) + p["state"]["b"].astype(x.dtype)
    weights = p["state"]["w"].astype(x.dtype)

    def step(carry: tuple[jax.Array, jax.Array], given: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        hidden, cell = carry
        total = given.astype(jnp.float32) + jnp.dot(hidden, weights, preferred_element_type=jnp.float32)
        enters, stays, new, leaves = jnp.split(total, 4, axis=-1)
        cell = jax.nn.sigmoid(stays) * cell + jax.nn.sigmoid(enters) * jnp.tanh(new)
        hidden = (jax.nn.sigmoid(leaves) * jnp.tanh(cell)).astype(x.dtype)
        return (hidden, cell), hidden

    first = jnp.zeros(x.shape[1:], x.dtype), jnp.zeros(x.shape[1:], jnp.float32)
    return lax.scan(step, first, gates)[1]


def loss_of(params: Params, tokens: jax.Array, targets: jax.Array, key: jax.Array, sizes: Sizes) -> jax.Array:
    """Mean cross-entropy of the next tokens, [batch, length]."""
    keys = jax.random.split(key, sizes.layers)
    h = params["tokens"].astype(sizes.dtype)[tokens.T]
    for number, p in enumerate(params["layers"]):
        h = _layer(p, h if number == 0 else dropout(h, keys[number], sizes.dropout))
    logits = dense(params["head"], h.reshape(-1, sizes.width)).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets.T.reshape(-1)).mean()


def step_of(mesh: Mesh, sizes: Sizes) -> tuple[Any, tuple[Any, ...]]:
    """The jitted training step on a mesh with the axis "data", and its arguments as shapes."""
    tokens = jax.ShapeDtypeStruct((sizes.batch, sizes.length), jnp.int32)
    return adamw_step(partial(loss_of, sizes=sizes), mesh, shapes(sizes), [tokens, tokens])
