"""All advice that has to compile the step once more, with something changed."""

from __future__ import annotations

from ._advise_by_memory import advise_memory
from ._advise_by_speed import advise_speed
from ._report import PreflightReport
from ._trials import Trial


def advised_by_trials(report: PreflightReport, trial: Trial) -> PreflightReport:
    """The report with advice on memory where it does not fit, else on batch size and precision.

    Args:
        report: what is to be improved.
        trial: compiles a variant of it for the same slice.
    """
    return report.advised((advise_speed if report.fits else advise_memory)(report, trial))
