"""The host's numbers of a step (learning rates, counters) as one array of 32-bit words, and back inside the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import fx


def number_record(graph: fx.Graph, skip: int) -> np.dtype[Any]:
    """How the host's numbers lie in 32-bit words: a TPU has no float64, not even to convert from."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"][skip:]
    return np.dtype([(f"number_{i}", _number_dtype(node)) for i, node in enumerate(placeholders)])


def _number_dtype(node: fx.Node) -> Any:
    """float32 for a float, which is what TPUs compute in, unless an op of a float64 model uses it."""
    if not isinstance(node.meta["val"], torch.SymFloat):
        return np.int64
    values = (user.meta.get("val") for user in node.users)
    wide = any(isinstance(v, torch.Tensor) and v.dtype in (torch.float64, torch.complex128) for v in values)
    return np.float64 if wide else np.float32


def words(values: Sequence[Any], record: np.dtype[Any]) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite there, as on the device
        # a first dimension of one, so that they go whole to every device: `shard` would split words whose number divides
        return np.array([tuple(values)], record).view(np.int32)[None]


def number_of(words: jax.Array, record: np.dtype[Any], name: str) -> jax.Array:
    """The number that `words` put there."""
    assert record.fields is not None, "a record has fields"
    dtype, offset = record.fields[name][:2]  # pyright: ignore[reportArgumentType]
    own = words[0, offset // 4 : (offset + dtype.itemsize) // 4]
    if dtype == np.float32:
        return jax.lax.bitcast_convert_type(own[0], jnp.float32)
    if dtype == np.float64:
        return jax.lax.bitcast_convert_type(own, jnp.float64)
    return (own[1].astype(jnp.int64) << 32) | jax.lax.bitcast_convert_type(own[0], jnp.uint32).astype(jnp.int64)
