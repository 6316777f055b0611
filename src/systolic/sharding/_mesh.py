"""The mesh: all devices of a run, along named axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

DATA_AXIS = "data"
"""The axis along which batches are split."""


def make_mesh(devices: Sequence[Device]) -> Mesh:
    """All devices along the axis of the data.

    Example:
        >>> import jax
        >>> from systolic.sharding import make_mesh
        >>> make_mesh(jax.devices()[:1]).axis_names
        ('data',)
    """
    return Mesh(np.array(devices), (DATA_AXIS,))


def batch_spec(shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
    """How a tensor of a batch lies: split along its first dimension where that divides, else whole everywhere.

    Args:
        shape: the tensor's.
        mesh: the devices.
    """
    divides = len(shape) > 0 and shape[0] > 0 and shape[0] % mesh.shape[DATA_AXIS] == 0
    return PartitionSpec(DATA_AXIS) if divides else PartitionSpec()


def sharding_on(mesh: Mesh, spec: PartitionSpec) -> Sharding:
    """A placement on the mesh."""
    if mesh.size == 1:
        # the same placement; a call takes 15 us with it instead of 31
        return SingleDeviceSharding(mesh.devices.item())
    return NamedSharding(mesh, spec)
