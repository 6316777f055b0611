"""Named durations and counters, and the report over them in the layout that TPU users know."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from typing import Any

from ._units import duration

PERCENTILES = (1, 5, 10, 20, 50, 80, 90, 95, 99)
_KEPT_SAMPLES = 1024


class Durations:
    """Samples of one duration.

    Attributes:
        total: how many samples there were.
        accumulated: their sum in seconds.
        samples: the newest 1,024 of them as (time of the sample, seconds); rates and percentiles are over these.
    """

    __slots__ = ("accumulated", "samples", "total")

    def __init__(self) -> None:
        self.total = 0
        self.accumulated = 0.0
        self.samples: deque[tuple[float, float]] = deque(maxlen=_KEPT_SAMPLES)

    def add(self, seconds: float, at: float) -> None:
        """Take a sample."""
        self.total += 1
        self.accumulated += seconds
        self.samples.append((at, seconds))

    def percentiles(self) -> dict[int, float]:
        """Seconds by percentage: the sample at that rank, as torch_xla takes it."""
        ordered = sorted(seconds for _, seconds in self.samples)
        return {p: ordered[int(p / 100 * len(ordered))] for p in PERCENTILES} if ordered else {}

    def rates(self) -> tuple[float, float] | None:
        """Seconds per second and samples per second; None while all samples are of one instant."""
        if not self.samples or self.samples[-1][0] <= self.samples[0][0]:
            return None
        elapsed = self.samples[-1][0] - self.samples[0][0]
        return sum(seconds for _, seconds in self.samples) / elapsed, len(self.samples) / elapsed

    def text(self, name: str) -> str:
        """The metric's paragraph of the report."""
        lines = [f"Metric: {name}", f"  TotalSamples: {self.total}", f"  Accumulator: {duration(self.accumulated)}"]
        rates = self.rates()
        if rates is not None:
            lines += [f"  ValueRate: {duration(rates[0])} / second", f"  Rate: {rates[1]:.6g} / second"]
        if self.samples:
            lines.append("  Percentiles: " + "; ".join(f"{p}%={duration(v)}" for p, v in self.percentiles().items()))
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """The same for programs; durations in seconds."""
        rates = self.rates()
        return {
            "total_samples": self.total,
            "accumulator": self.accumulated,
            "value_rate": rates[0] if rates else None,
            "rate": rates[1] if rates else None,
            "percentiles": {str(p): value for p, value in self.percentiles().items()},
        }


class Metrics:
    """All metrics and counters of a run. Safe to use from several threads.

    Method names are those of `torch_xla.debug.metrics`.

    Example:
        >>> metrics = Metrics()
        >>> metrics.add("CompileTime", 0.25)
        >>> metrics.count("UncachedCompile")
        >>> metrics.counter_value("UncachedCompile")
        1
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._durations: dict[str, Durations] = {}
        self._counters: Counter[str] = Counter()

    def add(self, name: str, seconds: float, at: float | None = None) -> None:
        """Take a sample of a duration, in seconds; `at` is its `time.perf_counter()`, default now."""
        at = time.perf_counter() if at is None else at
        with self._lock:
            if name not in self._durations:
                self._durations[name] = Durations()
            self._durations[name].add(seconds, at)

    def count(self, name: str, by: int = 1) -> None:
        """Increase a counter."""
        with self._lock:
            self._counters[name] += by

    def metric_names(self) -> list[str]:
        """The metrics that have samples."""
        return sorted(self._durations)

    def metric_data(self, name: str) -> tuple[int, float, tuple[tuple[float, float], ...]] | None:
        """Number of samples, their sum in seconds, and the newest ones as (time, seconds); None for an unknown name."""
        with self._lock:
            found = self._durations.get(name)
            return None if found is None else (found.total, found.accumulated, tuple(found.samples))

    def counter_names(self) -> list[str]:
        """The counters that are not zero."""
        return sorted(self._counters)

    def counter_value(self, name: str) -> int | None:
        """A counter's value; None for an unknown name."""
        return self._counters.get(name)

    def clear_all(self) -> None:
        """Forget all samples and counts."""
        with self._lock:
            self._durations.clear()
            self._counters.clear()

    def metrics_report(self) -> str:
        """Everything as text, in torch_xla's layout."""
        with self._lock:
            paragraphs = [self._durations[name].text(name) for name in sorted(self._durations)]
            paragraphs += [f"Counter: {name}\n  Value: {self._counters[name]}" for name in sorted(self._counters)]
        return "\n".join(paragraphs) + "\n" if paragraphs else ""

    def as_dict(self) -> dict[str, Any]:
        """Everything for programs; durations in seconds."""
        with self._lock:
            metrics = {name: self._durations[name].as_dict() for name in sorted(self._durations)}
            return {"metrics": metrics, "counters": dict(sorted(self._counters.items()))}
