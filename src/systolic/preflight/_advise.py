"""Advice on what to change, each piece with the figures that it rests on.

Ideas that need nothing but the compiled step are in `_advise_*.py` and cost nothing. Those that have to compile the step
once more, with another batch or precision, take a `Trial` and are in `_advise_by_*.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from ._advise_attention import advise_attention
from ._advise_by_memory import advise_memory
from ._advise_by_speed import advise_speed
from ._advise_host import advise_host
from ._advise_padding import advise_padding
from ._advise_precision import advise_precision
from ._advise_time import advise_time
from ._hlo_analysis import HloAnalysis
from ._model import Advice
from ._products import products
from ._report import PreflightReport
from ._slices import Slice
from ._step import TracedStep
from ._trials import Trial


def advice_on(step: TracedStep, slice: Slice, report: PreflightReport, analysis: HloAnalysis) -> Iterator[Advice]:
    """Advice on a step that fits.

    Args:
        step: as captured.
        slice: what it was compiled for.
        report: what came out.
        analysis: the program.
    """
    found = tuple(products(step.captured.graph))
    yield from advise_padding(found, slice)
    yield from advise_precision(step, found)
    yield from advise_attention(step, slice, analysis)
    yield from advise_host(report, slice, analysis)
    yield from advise_time(analysis, slice.chip)


def advised_by_trials(report: PreflightReport, trial: Trial) -> PreflightReport:
    """The report with advice on memory where it does not fit, else on batch size and precision.

    Args:
        report: what is to be improved.
        trial: compiles a variant of it for the same slice.
    """
    return report.advised((advise_speed if report.fits else advise_memory)(report, trial))
