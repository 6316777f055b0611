"""Transfers between a core and its host in every step."""

from __future__ import annotations

from collections.abc import Iterator

from ._hlo_analysis import HloAnalysis, user_line
from ._model import Advice, Figure
from ._report import PreflightReport
from ._slices import Slice

_HOST_RATE = {"v6e": 32e9}
_USUAL_HOST_RATE = 16e9
"""Bytes/s of PCIe between a chip and its host (scaling book, chapter on TPUs)."""

_TRANSFERS = frozenset({"infeed", "outfeed", "send", "recv"})
_WORTH = 0.5
"""Share of a step that bringing its batch may take before it is worth a change: two batches are brought meanwhile."""


def advise_host(report: PreflightReport, slice: Slice, analysis: HloAnalysis) -> Iterator[Advice]:
    """Name transfers inside of the step, and batches that take long to bring."""
    inside = [operation for operation in analysis.operations if operation.opcode in _TRANSFERS]
    if inside:
        yield Advice(
            "host",
            "The step exchanges values with the host while it runs; the cores wait for that. Log tensors in place of their "
            "values, and move such code into hooks outside of the step.",
            tuple(
                Figure("host", f"{one.name} {user_line(one)}".strip(), one.hbm_bytes * one.times, "bytes", "optimized program")
                for one in inside
            ),
        )
    assert report.time is not None
    rate = _HOST_RATE.get(slice.chip.name, _USUAL_HOST_RATE) / slice.chip.devices
    seconds = report.memory.batch / rate
    if seconds > _WORTH * report.time.step:
        yield Advice(
            "host",
            "Bringing a batch to the cores takes about as long as the step. Hand narrow types over (images as uint8, tokens as "
            "int32), and convert and normalise them in the step, where it costs next to nothing.",
            (
                Figure("host", "batch per core", report.memory.batch, "bytes", "shapes of the batch / cores"),
                Figure("host", "time to bring it", seconds, "s", f"batch / {rate / 1e9:.3g} GB/s of PCIe"),
                Figure("host", "predicted step", report.time.step, "s", "prediction"),
            ),
        )
