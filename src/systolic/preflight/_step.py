"""A captured step with what the report needs to know about the run that it comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from ..compiler import Captured, CheckWatch, Program, Slot
from ..runtime._placement import AbstractPlacement


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
        notes: what the reader should know about how the step was found.
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
    notes: list[str] = field(default_factory=list)

    def program(self, devices: list[Any]) -> tuple[Program, tuple[Any, ...]]:
        """The program for some devices that need not be here, with descriptions of its arguments."""
        options = {"sync_batchnorm": self.sync_batchnorm, "matmul_precision": self.matmul_precision}
        placement = AbstractPlacement(devices, **options)
        program = Program(self.captured, placement, {}, CheckWatch(placement))
        leaves = [placement.describe(shape, dtype) for shape, dtype in self.leaves]
        return program, program.arguments(leaves, self.numbers)

    def parameters(self) -> list[Slot]:
        """The state's parameters."""
        return [slot for slot in self.captured.slots if isinstance(slot.tensor, nn.Parameter)]

    def optimizer_state(self) -> list[Slot]:
        """The state of optimizers."""
        return [slot for slot in self.captured.slots if slot.paths and str(slot.paths[0][0]).startswith("optimizer")]

    def other_state(self) -> list[Slot]:
        """Buffers, gradients that are kept between steps, totals of logged values."""
        others = {id(slot) for slot in (*self.parameters(), *self.optimizer_state())}
        return [slot for slot in self.captured.slots if id(slot) not in others]
