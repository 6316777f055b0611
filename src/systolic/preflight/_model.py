"""Findings of a preflight, as values; how they are shown is in `_report.py` and the modules that it imports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Figure:
    """One line of a report.

    Attributes:
        group: the heading that it stands under.
        name: what it is.
        value: a number, a text, or None where it is not known.
        unit: of the number: "bytes", "FLOP", "s", ...; empty for counts and texts.
        source: how the value was obtained.
    """

    group: str
    name: str
    value: float | int | str | None
    unit: str
    source: str


@dataclass(frozen=True)
class Advice:
    """One thing to change, or to know.

    Attributes:
        topic: what it is about: "memory", "batch size", "matrix unit", "precision", "attention", "time", "state",
            "gather and scatter", "layout", "host".
        text: what to do, in a sentence or two.
        evidence: the figures that it rests on; each says how it was obtained.
    """

    topic: str
    text: str
    evidence: tuple[Figure, ...]


@dataclass(frozen=True)
class SliceFigures:
    """The slice; rates are those of one core.

    Attributes:
        name: Google Cloud's spelling.
        topology: the compiler's spelling of one slice.
        slices: how many.
        cores: devices as JAX and `Trainer(devices=...)` count them; a batch is split over these.
        tensor_cores: on v4 and v5p two of them make one device.
        chips: how many.
        hosts: virtual machines.
        peak_flops: bfloat16 FLOP/s.
        hbm_bandwidth: bytes/s.
        clock_hz: cycles/s.
        mxu: side of the matrix unit.
        price_per_hour: USD for the whole slice, or None.
        price_source: where the price comes from.
    """

    name: str
    topology: str
    slices: int
    cores: int
    tensor_cores: int
    chips: int
    hosts: int
    peak_flops: float
    hbm_bandwidth: float
    clock_hz: float
    mxu: int
    price_per_hour: float | None
    price_source: str


@dataclass(frozen=True)
class BatchFigures:
    """Samples in a step.

    Attributes:
        total: over all cores.
        per_core: on each core.
        tokens_per_sample: length of the sequences, where the batch holds some.
        samples_per_epoch: of the loader, where it is known.
    """

    total: int
    per_core: int
    tokens_per_sample: int | None
    samples_per_epoch: int | None


@dataclass(frozen=True)
class MemoryFigures:
    """Bytes of HBM on each core.

    Attributes:
        parameters: the module's.
        optimizer_state: moments and the like.
        other_state: buffers, gradients that are kept between steps, totals of logged values.
        batch: this core's part of it.
        padding: what layouts of the arguments take beyond that.
        outputs: results that do not lie where arguments lay.
        temporaries: activations and workspace, at their peak.
        code: the program.
        total: what the program needs.
        capacity: what the compiler lets programs use.
    """

    parameters: int
    optimizer_state: int
    other_state: int
    batch: int
    padding: int
    outputs: int
    temporaries: int
    code: int
    total: int
    capacity: int

    @property
    def free(self) -> int:
        """Bytes that are left; negative when the program does not fit."""
        return self.capacity - self.total

    @property
    def percent(self) -> float:
        """Of the capacity."""
        return 100 * self.total / self.capacity


@dataclass(frozen=True)
class WorkFigures:
    """Work of one step on each core.

    Attributes:
        flops: XLA's count, without Pallas kernels.
        model_flops: what the mathematics needs (systolic.compiler._flops has the rule).
        kernel_flops: of Pallas kernels, as their authors state them.
        bytes_moved: between HBM and the core: operands and results of every operation that lie in HBM.
        xla_bytes: XLA's own count of bytes accessed, which includes on-chip memory.
    """

    flops: float
    model_flops: float
    kernel_flops: float
    bytes_moved: int
    xla_bytes: float


@dataclass(frozen=True)
class CollectiveFigures:
    """Communication of one kind in a step.

    Attributes:
        kind: "all-reduce", ...
        axis: which axis of the mesh it goes over, or which of them: "fsdp", "data x fsdp"; "groups of 4" where none fits.
        count: how often.
        bytes: on each core, all of them together.
        seconds: all of them together, by the model of `systolic.preflight._links`.
        hidden: whether the program computes meanwhile.
        slices: over how many slices, each core with its likes, through the data centre's network; 1: over a slice's links.
    """

    kind: str
    axis: str
    count: int
    bytes: int
    seconds: float
    hidden: bool
    slices: int = 1


@dataclass(frozen=True)
class TimeFigures:
    """Prediction for one step; seconds.

    Attributes:
        cycles: the compiler's estimates, summed over what a core executes.
        estimated: those cycles at the chip's clock.
        kernels: Pallas kernels, by a roofline.
        unestimated: other operations without an estimate that the core waits for, by their bytes.
        transfers: all bytes between HBM and the core at its bandwidth: a step takes at least this. Copies that run
            beside computation (prefetches) count here only.
        collectives: communication that nothing hides.
        step: the longer one of computation (cycles, kernels, others) and transfers, and communication after it.
        bound: "memory" or "compute": which of both alone would take longer at peak rates.
        utilization: predicted share of the peak that goes into model FLOPs (MFU).
        samples_per_second: over all cores.
        tokens_per_second: over all cores, or None.
        epoch: an epoch of the loader, or None.
        epoch_cost: USD, or None where price or length are not known.
    """

    cycles: int
    estimated: float
    kernels: float
    unestimated: float
    transfers: float
    collectives: float
    step: float
    bound: str
    utilization: float
    samples_per_second: float
    tokens_per_second: float | None
    epoch: float | None
    epoch_cost: float | None


@dataclass(frozen=True)
class OperationFigures:
    """One of the operations that take longest.

    Attributes:
        name: in the compiled program.
        opcode: HLO's.
        cycles: in a step.
        share: of all estimated cycles, 0 to 1.
        bytes: moved between HBM and the core in a step.
        flops: of its matrix products and convolutions in a step.
        inside: opcodes that were fused into it.
        module: the user's module: `model.net.0`, `backward/model.net.0` (its gradient), `optimizer`; or empty.
        line: of the user's code, as "file:line"; or empty.
    """

    name: str
    opcode: str
    cycles: int
    share: float
    bytes: int
    flops: int
    inside: tuple[str, ...]
    module: str
    line: str


@dataclass(frozen=True)
class CompileFigures:
    """Time that compiling took; seconds.

    Attributes:
        trace: PyTorch's tracing.
        compile: the TPU compiler; the time of the first compilation when the result was kept from then.
        was_cached: whether it was.
    """

    trace: float
    compile: float
    was_cached: bool


@dataclass(frozen=True)
class Measurement:
    """A step that was run, against its prediction.

    Attributes:
        platform: "tpu", "cpu", "gpu".
        device_kind: JAX's name of the devices.
        devices: how many.
        step: seconds a step, the median.
        steps: how many were timed.
        ratio: measured divided by predicted; on other devices than the slice's it says nothing about the prediction.
    """

    platform: str
    device_kind: str
    devices: int
    step: float
    steps: int
    ratio: float | None


@dataclass(frozen=True)
class Findings:
    """How one step would do on one slice: the values, which renderers read.

    Attributes:
        model: the module's class.
        stage: "train", "validation", "test" or "predict".
        precision: the Trainer's.
        parameters: how many elements.
        work: None when the program was refused; so are `time` and `collectives` empty then.
        operations: the ten that take longest.
        dtypes: how many instructions of the optimized program give arrays of each type.
        products: how many matrix products and convolutions the step asks for, by the type of what they multiply.
        refusal: the compiler's words when the program does not fit; else empty.
        notes: what the reader should know.
        measurement: None unless it was asked for.
        advice: what to change, with evidence.
        remat: the Trainer's; "function" for one of the user's.
    """

    model: str
    stage: str
    precision: str
    slice: SliceFigures
    batch: BatchFigures
    parameters: int
    memory: MemoryFigures
    work: WorkFigures | None
    collectives: tuple[CollectiveFigures, ...]
    time: TimeFigures | None
    operations: tuple[OperationFigures, ...]
    dtypes: dict[str, int]
    products: dict[str, int]
    compilation: CompileFigures
    refusal: str = ""
    notes: tuple[str, ...] = ()
    measurement: Measurement | None = None
    advice: tuple[Advice, ...] = ()
    remat: str = "none"

    @property
    def fits(self) -> bool:
        """Whether the compiler accepted the program."""
        return not self.refusal

    def measured(self, found: Measurement) -> Self:
        """This report with a measurement, compared with the prediction."""
        ratio = None if self.time is None else found.step / self.time.step
        return dataclasses.replace(self, measurement=dataclasses.replace(found, ratio=ratio))

    def advised(self, advice: Iterable[Advice]) -> Self:
        """This report with some advice in place of its own on the same topics."""
        found = tuple(advice)
        topics = {one.topic for one in found}
        return dataclasses.replace(self, advice=(*found, *(one for one in self.advice if one.topic not in topics)))
