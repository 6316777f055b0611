"""The mesh: all devices of a run, along named axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

if TYPE_CHECKING:
    from ..utilities._jax_internals import Device

DATA_AXIS = "data"
"""The axis along which batches are split, and the state is not."""

FSDP_AXIS = "fsdp"
"""The axis along which batches are split, and the state is, too: each device gathers what it computes with."""

TENSOR_AXIS = "tensor"
"""The axis along which the state is split, and batches are not: each device computes with its part."""


@dataclass(frozen=True)
class MeshShape:
    """How many devices lie along each axis of the mesh.

    Attributes:
        data: groups that hold the whole state each.
        fsdp: over how many devices of a group parameters, gradients and optimizer state are split.
        tensor: over how many devices a layer's work is split.
    """

    data: int = 1
    fsdp: int = 1
    tensor: int = 1

    def __post_init__(self) -> None:
        """Refuse sizes that no number of devices makes up.

        Raises:
            ValueError: a size is no integer >= 1 and not -1, or two are -1.
        """
        sizes = astuple(self)
        integers = all(isinstance(size, int) and not isinstance(size, bool) for size in sizes)
        if not integers or any(size < 1 and size != -1 for size in sizes) or sizes.count(-1) > 1:
            raise ValueError(
                "`data`, `fsdp` and `tensor` are numbers of devices >= 1, one of them may be -1 for what the others leave. "
                f"Received: data={self.data!r}, fsdp={self.fsdp!r}, tensor={self.tensor!r}."
            )

    @property
    def batch_parts(self) -> int:
        """Into how many parts batches are split."""
        return self.data * self.fsdp

    def filled(self, devices: int) -> MeshShape:
        """The shape with the axis that is -1 made as long as the devices allow.

        Args:
            devices: how many there are.

        Raises:
            ValueError: the axes do not make up that many devices.

        Example:
            >>> from systolic.sharding import MeshShape
            >>> MeshShape(data=2, fsdp=-1).filled(8)
            MeshShape(data=2, fsdp=4, tensor=1)
        """
        sizes = astuple(self)
        known = math.prod(size for size in sizes if size != -1)
        if devices % known or (-1 not in sizes and known != devices):
            raise ValueError(
                f"{self} makes {known} devices or a multiple of them, and the run has {devices}. Choose axes whose product "
                f"is {devices}, or one axis as -1, which takes what is left."
            )
        return MeshShape(*(devices // known if size == -1 else size for size in sizes))


def make_mesh(devices: Sequence[Device], shape: MeshShape | None = None) -> Mesh:
    """All devices along the axis of the data, or along the axes of a shape.

    Args:
        devices: all of them; those next to each other lie along the last axis, which communicates most.
        shape: how many along each axis; None for all along the data's.

    Example:
        >>> import jax
        >>> from systolic.sharding import make_mesh
        >>> make_mesh(jax.devices()[:1]).axis_names
        ('data',)
    """
    if shape is None:
        return Mesh(np.array(devices), (DATA_AXIS,))
    return Mesh(np.array(devices).reshape(astuple(shape)), (DATA_AXIS, FSDP_AXIS, TENSOR_AXIS))


def batch_axes(mesh: Mesh) -> tuple[str, ...]:
    """The axes along which batches are split."""
    return tuple(axis for axis in (DATA_AXIS, FSDP_AXIS) if axis in mesh.shape)


def batch_parts(mesh: Mesh) -> int:
    """Into how many parts batches are split."""
    return math.prod(mesh.shape[axis] for axis in batch_axes(mesh))


def split_batch(mesh: Mesh) -> PartitionSpec:
    """The placement of a batch whose first dimension divides."""
    return PartitionSpec(batch_axes(mesh) if FSDP_AXIS in mesh.shape else DATA_AXIS)


def batch_spec(shape: Sequence[int], mesh: Mesh) -> PartitionSpec:
    """How a tensor of a batch lies: split along its first dimension where that divides, else whole everywhere.

    Args:
        shape: the tensor's.
        mesh: the devices.
    """
    divides = len(shape) > 0 and shape[0] > 0 and shape[0] % batch_parts(mesh) == 0
    return split_batch(mesh) if divides else PartitionSpec()


def named_sharding(mesh: Mesh, spec: PartitionSpec) -> NamedSharding:
    """A placement on a mesh of several devices."""
    assert mesh.size > 1, "nothing is split over one device"
    return NamedSharding(mesh, spec)


def sharding_on(mesh: Mesh, spec: PartitionSpec) -> Sharding:
    """A placement on the mesh."""
    if mesh.size == 1:
        # the same placement; a call takes 15 us with it instead of 31
        return SingleDeviceSharding(mesh.devices.item())
    return named_sharding(mesh, spec)
