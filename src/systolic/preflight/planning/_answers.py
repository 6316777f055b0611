"""The compiler's answer about one way to run."""

from __future__ import annotations

from .._build import report_on
from .._report import PreflightReport
from ._facts import Steps
from ._outcome import BatchTime, Prediction
from ._space import Cell


def ask_compiler(cell: Cell, steps: Steps) -> Prediction:
    """Compile the step of a way: with accumulation both programs, of a batch before the last one and of the last.

    What was compiled at an earlier time comes from the disk, as for `systolic preflight`.

    Raises:
        MisconfigurationException: it cannot be run so.
    """
    last = report_on(steps.traced(cell), cell.slice)
    if cell.accumulation == 1 or not last.fits:
        return as_prediction(last, last)
    return as_prediction(report_on(steps.traced(cell, updates=False), cell.slice), last)


def as_prediction(middle: PreflightReport, last: PreflightReport) -> Prediction:
    """Reports of the batches of an update as a prediction.

    Args:
        middle: of a batch that only adds to the gradients.
        last: of one after which the optimizer steps; the same where there is no accumulation.
    """
    memory = max(middle.memory, last.memory, key=lambda one: one.total)
    return Prediction(
        middle=_batch_time(middle),
        last=_batch_time(last),
        memory=memory.total,
        capacity=memory.capacity,
        flops=0.0 if last.work is None else last.work.model_flops,
        compiled=True,
        refused=not (middle.fits and last.fits),
    )


def _batch_time(report: PreflightReport) -> BatchTime:
    if report.time is None:
        return BatchTime(0.0, 0.0)
    return BatchTime(report.time.step - report.time.collectives, report.time.collectives, report.collectives)
