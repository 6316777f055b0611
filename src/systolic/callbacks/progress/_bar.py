"""One bar's numbers: how much is done, how fast, and what the metrics were."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor


class Bar:
    """Counts batches. The rate leaves out the first batch and pauses: both are mostly compiling or validation.

    Args:
        label: What is going on.
        total: How many batches there will be; infinite when unknown.
        now: The time, by `time.perf_counter()`.

    Attributes:
        done: How many batches are done.
        elapsed: Seconds from the start to the last mark, pauses included.
    """

    def __init__(self, label: str, total: float, now: float) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self.elapsed = 0.0
        self._started = now
        self._first: tuple[float, int] | None = None
        self._newest = (now, 0)
        self._pauses = 0
        self._paused_at = 0.0
        self._paused = 0.0
        self._paused_before_newest = 0.0

    def mark(self, now: float) -> None:
        """Note that `done` batches were done at this time; the first mark is where the rate is counted from."""
        self.elapsed = now - self._started
        if self.done == self._newest[1]:
            return
        self._newest = (now, self.done)
        if self._first is None:
            self._first, self._paused = self._newest, 0.0
        self._paused_before_newest = self._paused

    def pause(self, now: float) -> None:
        """Stop the rate's clock; pauses may nest."""
        if self._pauses == 0:
            self.mark(now)
            self._paused_at = now
        self._pauses += 1

    def resume(self, now: float) -> None:
        """End a pause."""
        self._pauses -= 1
        if self._pauses == 0:
            self._paused += now - self._paused_at

    @property
    def rate(self) -> float | None:
        """Batches a second, or None when it is too early to tell."""
        if self._first is None:
            return None
        (since, before), (until, after) = self._first, self._newest
        running = until - since - self._paused_before_newest
        return (after - before) / running if running > 0 and after > before else None

    @property
    def remaining(self) -> float | None:
        """Seconds to go at this rate, or None when unknown."""
        return (self.total - self.done) / self.rate if self.rate and math.isfinite(self.total) else None


def format_metrics(metrics: Mapping[str, Any], number_format: str, delimiter: str) -> str:
    """Show metrics as `name: value`. Tensors are left out: showing one would wait for the devices."""
    shown = {name: value for name, value in metrics.items() if not isinstance(value, Tensor)}
    return delimiter.join(f"{name}: {_format_value(value, number_format)}" for name, value in shown.items())


def _format_value(value: object, number_format: str) -> str:
    return format(value, number_format) if isinstance(value, float) else str(value)
