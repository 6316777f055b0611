"""Attention that forms the whole matrix of scores on TPU, and why no kernel computes it there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax.numpy as jnp
from jax.sharding import Mesh
from torch import fx

from ..kernels import (
    LARGEST_FEATURES,
    SMALLEST_LENGTH,
    WITHOUT_KERNELS,
    Shaped,
    calls_of,
    flash_supports,
    gives_mask_gradient,
    plain_attention,
    wanted_of,
)
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


TRAINED_MASK = Obstacle(
    "a trained mask that heads, queries or keys share, or that is too large",
    "Kernels give the gradient of what is added to scores where it has the shape (1 or batch, heads, length, other length); "
    "one that the batch shares must fit vector memory twice, a head of it in float32.",
)
CHIP = Obstacle("a chip without kernels", "v2 and v3 have no kernel; v4 and later chips have.")
SHAPES = Obstacle(
    "shapes or dtypes that the kernel does not know",
    "It takes bfloat16 or float32 of (batch, heads, length, features), as many keys as values, heads of the keys that divide "
    f"those of the query, up to {LARGEST_FEATURES} features, and masks that broadcast to the scores.",
)


def plain_attention_calls(graph: fx.Graph, mesh: Mesh) -> Iterator[PlainAttention]:
    """Attention of the forward pass that takes the plain form on TPU, in order.

    Args:
        graph: as captured.
        mesh: the cores that it is lowered for.
    """
    for node, (query, key, value, mask, _) in calls_of(graph, plain_attention):
        scope = node.meta.get(SCOPE, "")
        is_trained = mask is not None and _MASK in wanted_of(node)
        found = tuple(_obstacles(query, key, value, mask, is_trained, mesh))
        if found and not scope.startswith("backward"):
            width = jnp.promote_types(query.dtype, jnp.float32).itemsize
            scores = math.prod(query.shape[:-1]) * key.shape[-2] * width
            yield PlainAttention(scope, node.meta.get(LINE, ""), scores, found)


_MASK = 3
"""Number of the mask among the operands of attention."""


def _obstacles(
    query: Shaped, key: Shaped, value: Shaped, mask: Shaped | None, is_trained: bool, mesh: Mesh
) -> Iterator[Obstacle]:
    lengths = query.shape[-2], key.shape[-2]
    if is_trained and mask is not None and not gives_mask_gradient(query, key, value, mask, mesh):
        yield TRAINED_MASK
    if flash_supports(query, key, value, mask, mesh):
        return
    if mesh.devices.flat[0].device_kind in WITHOUT_KERNELS:
        yield CHIP
    elif min(lengths) < SMALLEST_LENGTH:
        yield _of_lengths(lengths)
    else:
        yield SHAPES


def _of_lengths(lengths: tuple[int, int]) -> Obstacle:
    given = " x ".join(map(str, lengths))
    return Obstacle(
        f"lengths of {given}", f"The matrix of scores is small where a length is below {SMALLEST_LENGTH}: nothing to change."
    )
