"""Attention that forms the whole matrix of scores on TPU, and why no kernel computes it there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
from jax.sharding import Mesh
from torch import fx

from ..kernels import LANES, LARGEST_FEATURES, WITHOUT_KERNELS, Shaped, calls_of, plain_attention, splash_supports
from ..lowering import LINE, SCOPE


@dataclass(frozen=True)
class Obstacle:
    """Something that the kernel cannot do.

    Attributes:
        cause: what it is, in a few words.
        remedy: what to change, as a sentence.
    """

    cause: str
    remedy: str


@dataclass(frozen=True)
class PlainAttention:
    """A call of attention that no kernel computes.

    Attributes:
        module: path of the user's module.
        line: "file:line" of the user's code.
        score_bytes: size of the matrix of scores, over all cores.
        obstacles: why; at least one.
    """

    module: str
    line: str
    score_bytes: int
    obstacles: tuple[Obstacle, ...]


MASK = Obstacle(
    "a mask",
    "In place of a causal mask pass is_causal=True; leave a mask out that hides nothing: cut or pack sequences instead of "
    "padding them.",
)
DROPOUT = Obstacle(
    "dropout on the probabilities",
    "Set attention's dropout_p to 0; dropout on the output of attention may stay.",
)
CHIP = Obstacle("a chip without kernels", "v2 and v3 have no kernel; v4 and later chips have.")
SHAPES = Obstacle(
    "shapes or dtypes that the kernel does not know",
    "It takes bfloat16 or float32 of (batch, heads, length, features), keys and values of one shape, heads of the keys that "
    f"divide those of the query, up to {LARGEST_FEATURES} features.",
)


def plain_attention_calls(graph: fx.Graph, mesh: Mesh) -> Iterator[PlainAttention]:
    """Attention of the forward pass that takes the plain form on TPU, in order.

    Args:
        graph: as captured.
        mesh: the cores that it is lowered for.
    """
    for node, (query, key, value, mask, draw) in calls_of(graph, plain_attention):
        scope = node.meta.get(SCOPE, "")
        found = tuple(_obstacles(query, key, value, mask, draw, mesh))
        if found and not scope.startswith("backward"):
            width = jnp.promote_types(query.dtype, jnp.float32).itemsize
            scores = math.prod(query.shape[:-1]) * key.shape[-2] * width
            yield PlainAttention(scope, node.meta.get(LINE, ""), scores, found)


def _obstacles(query: Shaped, key: Shaped, value: Shaped, mask: object, draw: object, mesh: Mesh) -> Iterator[Obstacle]:
    if mask is not None:
        yield MASK
    if draw is not None:
        yield DROPOUT
    if splash_supports(query, key, value, mesh):
        return
    lengths = query.shape[-2], key.shape[-2]
    if mesh.devices.flat[0].device_kind in WITHOUT_KERNELS:
        yield CHIP
    elif any(length % LANES for length in lengths):
        yield _of_lengths(lengths)
    else:
        yield SHAPES


def _of_lengths(lengths: tuple[int, int]) -> Obstacle:
    given = " x ".join(map(str, lengths))
    wanted = " x ".join(str(-(-length // LANES) * LANES) for length in lengths)
    if max(lengths) < LANES:
        return Obstacle(f"lengths of {given}", f"At lengths under {LANES} the matrix of scores is small: nothing to change.")
    return Obstacle(f"lengths of {given}", f"Make lengths multiples of {LANES}: {wanted} in place of {given}.")
