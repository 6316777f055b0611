"""From a traced step and a slice to a report."""

from __future__ import annotations

import math

from ..compiler import model_flops
from ..runtime import cache_suspended
from ._advise import advice_on
from ._advise_state import advise_state
from ._collectives import collectives_of
from ._compiled import Compiled, Lowered
from ._hlo import analyse
from ._hlo_analysis import HloAnalysis, module_of, user_line
from ._kernel_time import kernel_seconds
from ._model import (
    BatchFigures,
    CollectiveFigures,
    CompileFigures,
    MemoryFigures,
    OperationFigures,
    SliceFigures,
    TimeFigures,
    WorkFigures,
)
from ._report import PreflightReport
from ._slices import Slice
from ._step import TracedStep
from ._topology import slice_devices

_LISTED_OPERATIONS = 10


def report_on(step: TracedStep, slice: Slice) -> PreflightReport:
    """Compile a step for a slice and describe what came out.

    Args:
        step: captured for as many cores as the slice has.
        slice: where it would run.

    Raises:
        MisconfigurationException: libtpu is not installed.
    """
    lowered = lower(step, slice)
    with cache_suspended():
        return describe(step, slice, lowered.compile())


def lower(step: TracedStep, slice: Slice) -> Lowered:
    """The step as a program for a slice; equal programs for the same chips are compiled once."""
    program, arguments = step.program(slice_devices(slice))
    target = f"{slice.topology} {slice.chip.devices} {slice.count} {program.options}"
    return Lowered(program.function, arguments, target)


def describe(step: TracedStep, slice: Slice, compiled: Compiled) -> PreflightReport:
    """Report of what the compiler said."""
    analysis = analyse(compiled.hlo) if compiled.hlo else None
    work = _work(step, slice, compiled, analysis) if analysis else None
    collectives = collectives_of(analysis, slice, step.layout.shape) if analysis else ()
    report = PreflightReport(
        model=step.model,
        stage=step.stage,
        precision=step.precision,
        slice=_slice_figures(slice),
        batch=BatchFigures(step.global_batch, step.core_batch, step.tokens_per_sample, step.samples_per_epoch),
        parameters=step.state.count("parameter"),
        memory=_memory(step, slice, compiled),
        work=work,
        collectives=collectives,
        time=_time(step, slice, work, collectives, analysis) if analysis and work else None,
        operations=_longest(analysis) if analysis else (),
        dtypes=dict(analysis.dtypes.most_common()) if analysis else {},
        products=compiled.products,
        compilation=CompileFigures(step.trace_seconds, compiled.seconds, compiled.was_cached),
        refusal=compiled.refusal,
        notes=(*step.notes, *_notes(analysis)),
        remat=step.remat,
    )
    return report.advised(advice_on(step, slice, report, analysis) if analysis else advise_state(step, slice, report))


def _slice_figures(slice: Slice) -> SliceFigures:
    chip = slice.chip
    return SliceFigures(
        name=slice.name,
        topology=slice.topology,
        slices=slice.count,
        cores=slice.devices,
        tensor_cores=slice.tensor_cores,
        chips=slice.chips,
        hosts=slice.hosts,
        peak_flops=chip.flops_per_device,
        hbm_bandwidth=chip.bandwidth_per_device,
        clock_hz=chip.clock_hz,
        mxu=chip.mxu,
        price_per_hour=slice.price,
        price_source=chip.price_source,
    )


def _memory(step: TracedStep, slice: Slice, compiled: Compiled) -> MemoryFigures:
    state = step.state_bytes(slice_devices(slice))
    parameters, optimizer = state.pop("parameter", 0), state.pop("optimizer", 0)
    other = sum(state.values())
    parts = slice.devices if step.layout.shape is None else step.layout.shape.batch_parts
    batch = sum(_leaf_bytes(shape, dtype.itemsize, parts) for shape, dtype in step.leaves)
    known = parameters + optimizer + other + batch
    found = compiled.memory
    if found:
        outputs = found["outputs"] - found["aliased"]
        padding = max(0, found["arguments"] - known)
        temporaries, code = found["temporaries"], found["code"]
        total = found["arguments"] + outputs + temporaries + code
    else:
        outputs = padding = code = 0
        total = compiled.required_bytes or known
        temporaries = max(0, total - known)
    capacity = compiled.available_bytes or slice.chip.hbm_per_device
    return MemoryFigures(parameters, optimizer, other, batch, padding, outputs, temporaries, code, total, capacity)


def _leaf_bytes(shape: tuple[int, ...], itemsize: int, parts: int) -> int:
    whole = math.prod(shape) * itemsize
    return whole // parts if shape and shape[0] % parts == 0 else whole


def _work(step: TracedStep, slice: Slice, compiled: Compiled, analysis: HloAnalysis) -> WorkFigures:
    return WorkFigures(
        flops=max(0.0, compiled.flops - sum(call.flops_known_to_xla for call in analysis.custom_calls)),
        model_flops=model_flops(step.captured.graph) / slice.devices,
        kernel_flops=float(sum((call.flops or 0) * call.operation.times for call in analysis.custom_calls)),
        bytes_moved=sum(operation.hbm_bytes * operation.times for operation in analysis.operations),
        xla_bytes=compiled.bytes_accessed,
    )


def _time(
    step: TracedStep, slice: Slice, work: WorkFigures, collectives: tuple[CollectiveFigures, ...], analysis: HloAnalysis
) -> TimeFigures:
    chip = slice.chip
    cycles = analysis.estimated_cycles
    estimated = cycles / chip.clock_hz
    kernels = sum(kernel_seconds(call, chip) for call in analysis.custom_calls)
    waits = [one for one in analysis.unestimated if not one.opcode.endswith("-start")]
    unestimated = sum(one.hbm_bytes * one.times for one in waits) / chip.bandwidth_per_device
    transfers = work.bytes_moved / chip.bandwidth_per_device
    computing = max(estimated + kernels + unestimated, transfers)
    hidden = sum(one.seconds for one in collectives if one.hidden)
    shown = sum(one.seconds for one in collectives if not one.hidden) + max(0.0, hidden - computing)
    total = computing + shown
    arithmetic = (work.flops + work.kernel_flops) / chip.flops_per_device
    rate = step.global_batch / total
    tokens = None if step.tokens_per_sample is None else rate * step.tokens_per_sample
    epoch = None if step.samples_per_epoch is None else step.samples_per_epoch / rate
    return TimeFigures(
        cycles=cycles,
        estimated=estimated,
        kernels=kernels,
        unestimated=unestimated,
        transfers=transfers,
        collectives=shown,
        step=total,
        bound="memory" if transfers > arithmetic else "compute",
        utilization=work.model_flops / total / chip.flops_per_device,
        samples_per_second=rate,
        tokens_per_second=tokens,
        epoch=epoch,
        epoch_cost=None if epoch is None or slice.price is None else epoch / 3600 * slice.price,
    )


def _longest(analysis: HloAnalysis) -> tuple[OperationFigures, ...]:
    total = max(1, analysis.estimated_cycles)
    longest = sorted(analysis.operations, key=lambda one: one.total_cycles, reverse=True)[:_LISTED_OPERATIONS]
    return tuple(
        OperationFigures(
            name=one.name,
            opcode=one.opcode,
            cycles=one.total_cycles,
            share=one.total_cycles / total,
            bytes=one.hbm_bytes * one.times,
            flops=one.flops * one.times,
            inside=tuple(sorted(one.inner_opcodes)),
            module=module_of(one),
            line=user_line(one),
        )
        for one in longest
        if one.total_cycles
    )


def _notes(analysis: HloAnalysis | None) -> tuple[str, ...]:
    if analysis is None or not analysis.unknown_loops:
        return ()
    names = ", ".join(analysis.unknown_loops)
    return (f"how often these loops run could not be read from the program; they count once: {names}",)
