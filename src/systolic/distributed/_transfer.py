"""Arrays over the devices of all processes, and back."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from ..utilities._jax_internals import multihost_utils
from ._process import process_count


def make_global_array(values: np.ndarray[Any, Any], sharding: Sharding) -> jax.Array:
    """An array over all processes' devices, of which this process fills in its own part.

    Args:
        values: the whole array, the same in every process.
        sharding: which part lies where.
    """
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def gather_to_host(array: jax.Array) -> np.ndarray[Any, Any]:
    """The whole array, in every process. All of them must ask, where parts of it lie on devices of others."""
    if array.is_fully_addressable or process_count() == 1:
        return np.asarray(array)  # host sync: the value is wanted
    if array.is_fully_replicated:
        return np.asarray(array.addressable_data(0))  # host sync: the value is wanted
    return np.asarray(multihost_utils.process_allgather(array, tiled=True))  # host sync: the value is wanted
