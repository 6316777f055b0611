"""The largest batch that fits, found by compiling."""

from __future__ import annotations

from dataclasses import dataclass

from ._report import PreflightReport
from ._trials import Trial, Variant


@dataclass(frozen=True)
class LargestBatch:
    """Limit at which batches stop to fit.

    Attributes:
        fitting: the report with the largest batch that fits; None where not even one sample does.
        refused: the report with the next batch, which does not.
        tried: how many batches were compiled.
    """

    fitting: PreflightReport | None
    refused: PreflightReport
    tried: int


def largest_batch(refused: PreflightReport, trial: Trial) -> LargestBatch:
    """Search downwards from a batch that does not fit: a first guess from what a sample needs, then by halving.

    Batches up to 63 are searched one by one, larger ones in steps of a power of two, of 1.6% to 3.1% of the batch.

    Args:
        refused: the report of a batch that does not fit.
        trial: compiles with another batch.
    """
    return _Search(refused, trial).run()


class _Search:
    def __init__(self, refused: PreflightReport, trial: Trial) -> None:
        self._refused, self._trial = refused, trial
        self._tried = 0
        memory = refused.memory
        fixed = memory.parameters + memory.optimizer_state + memory.other_state
        per_sample = (memory.total - fixed) / refused.batch.per_core
        self._guess = max(1, int((memory.capacity - fixed) / per_sample))

    def run(self) -> LargestBatch:
        unit = _unit(self._guess)
        fitting = self._between(unit)
        while fitting is None and unit > 1:
            # the guess was far too high: nothing of one unit or more fits
            unit = _unit(unit)
            fitting = self._between(unit)
        return LargestBatch(fitting, self._refused, self._tried)

    def _between(self, unit: int) -> PreflightReport | None:
        """The largest multiple of a unit that fits, below what was refused."""
        low, high, found = 0, -(-self._refused.batch.per_core // unit), None
        candidate, stride, was_refused = self._guess // unit, 1, False
        while high - low > 1:
            candidate = min(max(candidate, low + 1), high - 1)
            report = self._trial(Variant(batch_size=candidate * unit))
            self._tried += 1
            if report.fits:
                low, found = candidate, report
            else:
                high, self._refused, was_refused = candidate, report, True
            # away from the guess in growing strides, until it lies between one that fits and one that does not
            candidate = (low + high) // 2 if found and was_refused else low + stride if report.fits else high - stride
            stride *= 2
        return found


def _unit(size: int) -> int:
    return 1 if size < 64 else 2 ** (size.bit_length() - 6)
