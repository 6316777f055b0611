"""Facts that the cost model is made of: bytes by shapes, and what remat does to a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from ...compiler import activations_of
from ...sharding import MeshShape, StateLayout
from .._slices import Slice
from .._step import TracedStep
from .._topology import slice_devices
from ._space import Cell


class Steps(Protocol):
    """Source of the steps that a plan asks about."""

    def traced(self, cell: Cell, *, updates: bool = True) -> TracedStep:
        """The step of one way to run, captured for its slice.

        Args:
            cell: the way.
            updates: whether the optimizer steps; False for a batch that only adds to the gradients.

        Raises:
            MisconfigurationException: it cannot be run so.
        """
        ...

    def layout(self, strategy: str, slice: Slice) -> StateLayout:
        """How the state would lie on a slice's cores.

        Raises:
            MisconfigurationException: the strategy cannot place it there.
        """
        ...


@dataclass(frozen=True)
class StateBytes:
    """Bytes of the state on each core, by shapes and the strategy's rule.

    Attributes:
        parameters: the module's.
        optimizer: its moments.
        other: buffers and totals.
        gradients: of all parameters that are trained.
        shape: the axes of the mesh; None where all cores lie along that of the data.
    """

    parameters: int
    optimizer: int
    other: int
    gradients: int
    shape: MeshShape | None = None

    @property
    def total(self) -> int:
        """Bytes of what lies there between steps, without accumulated gradients."""
        return self.parameters + self.optimizer + self.other

    @property
    def of_optimizer(self) -> int:
        """Bytes that an optimizer's step moves: it reads gradients, and reads and writes parameters and moments."""
        return 2 * (self.parameters + self.optimizer) + self.gradients


def state_bytes(step: TracedStep, layout: StateLayout, slice: Slice) -> StateBytes:
    """The state of a step without accumulation, by kind, on each core of a slice."""
    devices, laid = slice_devices(slice), step.with_layout(layout)
    found = laid.state_bytes(devices)
    parameters, optimizer = found.pop("parameter", 0), found.pop("optimizer", 0)
    return StateBytes(parameters, optimizer, sum(found.values()), laid.gradient_bytes(devices), layout.shape)


@dataclass(frozen=True)
class Recomputation:
    """Work and memory of one sample under one choice of remat, from the captured graph.

    Attributes:
        kept: bytes of the forward pass that the backward pass uses.
        flops: of products that are computed once more.
        bytes: of values that are.
    """

    kept: float
    flops: float
    bytes: float


def recomputation(step: TracedStep) -> Recomputation:
    """Count them in a traced step."""
    found, samples = activations_of(step.captured), step.global_batch
    return Recomputation(found.kept / samples, found.again_flops / samples, found.again_bytes / samples)


def batch_bytes(step: TracedStep) -> float:
    """Bytes of a sample of the batch."""
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in step.leaves) / step.global_batch
