"""Arrays over the devices of all processes, and back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from ..utilities._jax_internals import Format, multihost_utils
from ._process import process_count


def make_global_array(values: np.ndarray[Any, Any], place: Sharding | Format) -> jax.Array:
    """An array over all processes' devices, of which this process fills in its own part.

    Args:
        values: the whole array, the same in every process.
        place: which part lies where, and in which order of dimensions.
    """
    return jax.make_array_from_callback(values.shape, place, lambda index: values[index])


def join_parts(own: np.ndarray[Any, Any], sharding: Sharding, parts: int) -> jax.Array:
    """An array over all processes' devices, put together along its first dimension, process by process.

    Args:
        own: this process's part; all parts have its shape.
        sharding: a split of the first dimension.
        parts: how many processes there are.
    """
    return jax.make_array_from_process_local_data(sharding, own, (own.shape[0] * parts, *own.shape[1:]))


def broadcast_arrays(arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The first process's values of some arrays, in all processes; all have the same shapes and dtypes.

    Over the devices: weights are too large for the coordination service.
    """
    if process_count() == 1:
        return arrays
    with jax.enable_x64(True):
        sent = multihost_utils.broadcast_one_to_all(arrays)
    return [np.asarray(array) for array in sent]  # host sync: the values are wanted


def gather_to_host(array: jax.Array) -> np.ndarray[Any, Any]:
    """The whole array, in every process. All of them must ask, where parts of it lie on devices of others."""
    if array.is_fully_addressable or process_count() == 1:
        return np.asarray(array)  # host sync: the value is wanted
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))  # host sync: the value is wanted
    with jax.enable_x64(True):
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))  # host sync: the value is wanted
