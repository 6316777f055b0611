"""A captured step with what the report needs to know about the run that it comes from."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..compiler import Captured, CheckWatch, Program, TrainState
from ..runtime import AbstractPlacement
from ..sharding import DATA_PARALLEL, StateKind, StateLayout


@dataclass(frozen=True)
class TracedStep:
    """One step of a run, for some number of cores.

    Attributes:
        captured: the graph and the state that it reads and writes.
        leaves: shape and JAX dtype of every tensor of the (global) batch.
        numbers: values of the step's symbolic numbers.
        stage: "train", "validation", "test" or "predict".
        model: the module's class.
        precision: the Trainer's.
        sync_batchnorm: the Trainer's.
        matmul_precision: the Trainer's.
        global_batch: samples in a step, over all cores.
        core_batch: samples in a step on each core.
        samples_per_epoch: how many samples an epoch of the loader has, where it is known.
        tokens_per_sample: the length of the sequences, where the batch holds some: an integer tensor of two dimensions.
        trace_seconds: PyTorch's tracing.
        layout: how the state lies on the cores.
        notes: what the reader should know about how the step was found.
        remat: the Trainer's; "function" for one of the user's.
    """

    captured: Captured
    leaves: list[tuple[tuple[int, ...], Any]]
    numbers: list[Any]
    stage: str
    model: str
    precision: str
    sync_batchnorm: bool
    matmul_precision: str
    global_batch: int
    core_batch: int
    samples_per_epoch: int | None
    tokens_per_sample: int | None
    trace_seconds: float
    layout: StateLayout = DATA_PARALLEL
    notes: list[str] = field(default_factory=list)
    remat: str = "none"

    def program(self, devices: list[Any]) -> tuple[Program, tuple[Any, ...]]:
        """The program for some devices that need not be here, with descriptions of its arguments."""
        placement = self._placement(devices)
        program = Program(self.captured, placement, {}, CheckWatch(placement))
        leaves = [placement.describe(shape, dtype) for shape, dtype in self.leaves]
        return program, program.arguments(leaves, self.numbers)

    @property
    def state(self) -> TrainState:
        """The state that the step reads and writes."""
        return TrainState.of_slots(self.captured.slots)

    def state_bytes(self, devices: list[Any]) -> dict[StateKind, int]:
        """Bytes of the state on one device, by kind, as the run's rule places it."""
        placement, sizes = self._placement(devices), Counter[StateKind]()
        for entry, tensor in zip(self.state.entries, self.state.tensors, strict=True):
            part = placement.state_sharding(entry).shard_shape(entry.shape)
            sizes[entry.kind] += math.prod(part) * tensor.element_size()
        return dict(sizes)

    def gradient_bytes(self, devices: list[Any]) -> int:
        """Bytes of all gradients on one device, as the run's rule places them."""
        placement, size = self._placement(devices), 0
        for entry, tensor in zip(self.state.entries, self.state.tensors, strict=True):
            if entry.kind == "parameter" and tensor.requires_grad:
                gradient = dataclasses.replace(entry, kind="gradient")
                size += math.prod(placement.state_sharding(gradient).shard_shape(entry.shape)) * tensor.element_size()
        return size

    def with_layout(self, layout: StateLayout) -> TracedStep:
        """The step with its state in other places; the graph is the same."""
        return dataclasses.replace(self, layout=layout)

    def _placement(self, devices: list[Any]) -> AbstractPlacement:
        return AbstractPlacement(
            devices, sync_batchnorm=self.sync_batchnorm, matmul_precision=self.matmul_precision, layout=self.layout
        )
