"""`Trainer.preflight`: the step of a run, compiled for slices that are not here."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...exceptions import MisconfigurationException
from ...precision import resolve_precision
from ...preflight import (
    PreflightReport,
    Slice,
    TracedStep,
    Variant,
    advised_by_trials,
    parse_slice,
    progress,
    reports_on,
    slice_devices,
)
from ...utilities._suggest import suggest
from .._stage import STAGE_OF
from ._inspection import Subject, trace_step
from ._measure import measure_step

if TYPE_CHECKING:
    from ...utilities._jax_internals import Device

_PLATFORM = "tpu"


def preflight(
    subject: Subject,
    names: Sequence[str],
    sizes: Sequence[int | None],
    measured_on: list[Device] | None,
    advise: bool | None,
) -> list[PreflightReport]:
    """Reports that the Trainer's method returns, always as a list.

    Args:
        subject: whose step to look at.
        names: of the slices.
        sizes: samples on each core; None for the loader's.
        measured_on: devices to run the step on, too.
        advise: whether to compile variants for advice; None: for a single step that does not fit.
    """
    pairs = list(itertools.product(names, sizes))
    with progress() as tell:
        reports = [
            advised_by_trials(report, _trial(subject, name, report, tell))
            if advise or (advise is None and len(pairs) == 1 and not report.fits)
            else report
            for report, (name, _) in zip(_reports(subject, names, sizes, tell), pairs, strict=True)
        ]
    if measured_on is None:
        return reports
    found = {size: measure_step(subject, measured_on, size) for size in sizes}
    return [report.measured(found[size]) for report, (_, size) in zip(reports, pairs, strict=True)]


def _reports(
    subject: Subject, names: Sequence[str], sizes: Sequence[int | None], tell: Callable[[str], None]
) -> list[PreflightReport]:
    """Every slice with every batch size, in this order.

    The step is captured once for every number of cores and samples, because its shapes depend on these alone.

    Raises:
        MisconfigurationException: libtpu is not installed, or an argument is impossible.
        ValueError: an unknown slice.
    """
    pairs = [(parse_slice(name), size) for name, size in itertools.product(names, sizes)]
    steps: dict[tuple[int, int | None], TracedStep] = {}
    for slice, size in pairs:
        if (slice.devices, size) not in steps:
            batch = f", batch {size}" if size else ""
            tell(f"tracing {type(subject.model).__name__} for {slice.devices} cores{batch}")
            steps[slice.devices, size] = _trace(subject, slice, size)
    return reports_on([(steps[slice.devices, size], slice) for slice, size in pairs], tell)


def _trace(subject: Subject, slice: Slice, batch_size: int | None) -> TracedStep:
    return trace_step(subject, slice_devices(slice), batch_size)


def _trial(
    subject: Subject, name: str, report: PreflightReport, tell: Callable[[str], None]
) -> Callable[[Variant], PreflightReport]:
    """Function that compiles variants of a report's step for the same slice, each with a configuration of its own."""

    def compile(variant: Variant) -> PreflightReport:
        config, size = subject.config, variant.batch_size or report.batch.per_core
        varied = dataclasses.replace(
            config,
            accumulate_grad_batches=config.accumulate_grad_batches * variant.accumulation,
            numerics=config.numerics if variant.precision is None else resolve_precision(variant.precision, _PLATFORM),
        )
        return _reports(dataclasses.replace(subject, config=varied), [name], [size], tell)[0]

    return compile


def require_possible(stage: str, batch_sizes: Sequence[int | None]) -> None:
    """Check the method's arguments.

    Raises:
        MisconfigurationException: an unknown stage, or an impossible batch size.
    """
    if stage not in STAGE_OF:
        raise MisconfigurationException(
            f"Invalid value for argument `stage`. Expected one of {', '.join(map(repr, STAGE_OF))}. "
            f"Received: {stage!r}.{suggest(str(stage), STAGE_OF)}"
        )
    for size in batch_sizes:
        if size is not None and (not isinstance(size, int) or size < 1):
            raise MisconfigurationException(
                f"Invalid value for argument `batch_size`. Expected samples per core, an integer >= 1. Received: {size!r}."
            )
