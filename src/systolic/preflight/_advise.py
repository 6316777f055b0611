"""All advice that needs nothing but the compiled step."""

from __future__ import annotations

from collections.abc import Iterator

from ._advice import Advice
from ._advise_attention import advise_attention
from ._advise_host import advise_host
from ._advise_padding import advise_padding
from ._advise_precision import advise_precision
from ._advise_time import advise_time
from ._hlo_analysis import HloAnalysis
from ._products import products
from ._report import PreflightReport
from ._slices import Slice
from ._step import TracedStep


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
