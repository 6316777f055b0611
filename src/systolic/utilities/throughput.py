"""Rates over a window of points in time."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple


class _Point(NamedTuple):
    time: float
    batches: int
    samples: float
    lengths: float | None
    flops: float | None  # since the start


class Throughput:
    """Batches, samples, items and FLOP/s from totals that are reported from time to time.

    Args:
        available_flops: peak FLOP/s of one device; without it there is no `device/mfu`.
        world_size: how many devices there are; names without `device/` are over all of them.
        window_size: how many updates the rates are over, at least 2.
        separator: stands between `device` and the name.

    Raises:
        ValueError: a total decreases, or there are fewer samples than batches or fewer items than samples.

    Example:
        >>> throughput = Throughput(available_flops=100.0)
        >>> throughput.update(time=1.0, batches=1, samples=8, flops=50)
        >>> throughput.update(time=2.0, batches=2, samples=16, flops=50)
        >>> throughput.compute()["device/mfu"]
        0.5
    """

    def __init__(
        self, available_flops: float | None = None, world_size: int = 1, window_size: int = 100, separator: str = "/"
    ) -> None:
        if world_size < 1 or window_size < 2:
            raise ValueError(
                f"Throughput needs world_size >= 1 and window_size >= 2. Received: {world_size} and {window_size}."
            )
        self.available_flops = available_flops
        self.world_size = world_size
        self.separator = separator
        self._points: deque[_Point] = deque(maxlen=window_size)

    def update(
        self, *, time: float, batches: int, samples: float, lengths: float | None = None, flops: float | None = None
    ) -> None:
        """Report totals.

        Args:
            time: seconds since the start.
            batches: how many batches so far.
            samples: how many samples each device has seen so far.
            lengths: how many items (tokens) each device has seen so far.
            flops: FLOPs of each device *since the last update*.
        """
        last = self._points[-1] if self._points else _Point(float("-inf"), 0, 0.0, None, None)
        if time <= last.time or batches < last.batches or samples < last.samples:
            raise ValueError(
                f"Throughput takes totals, which never decrease. Received: time={time}, batches={batches}, "
                f"samples={samples} after {last}."
            )
        if samples < batches:
            raise ValueError(f"Expected samples ({samples}) to be at least the number of batches ({batches}).")
        if lengths is not None and lengths < samples:
            raise ValueError(f"Expected lengths ({lengths}) to be at least the number of samples ({samples}).")
        total = None if flops is None else flops + (last.flops or 0.0)
        self._points.append(_Point(time, batches, samples, lengths, total))

    def compute(self) -> dict[str, float]:
        """Totals and rates by name; rates from the second update on.

        Returns:
            `time`, `batches`, `samples`, `lengths`; `device/batches_per_sec`, `device/samples_per_sec`,
            `device/items_per_sec`, `device/flops_per_sec`, `device/mfu`; for several devices the same without
            `device/`, over all of them.
        """
        first, last = self._points[0], self._points[-1]
        found: dict[str, float] = {"time": last.time, "batches": last.batches, "samples": last.samples}
        if last.lengths is not None:
            found["lengths"] = last.lengths
        elapsed = last.time - first.time
        if not elapsed:
            return found
        rates = {
            "batches_per_sec": (last.batches - first.batches) / elapsed,
            "samples_per_sec": (last.samples - first.samples) / elapsed,
        }
        if last.lengths is not None and first.lengths is not None:
            rates["items_per_sec"] = (last.lengths - first.lengths) / elapsed
        if last.flops is not None and first.flops is not None:
            rates["flops_per_sec"] = (last.flops - first.flops) / elapsed
        for name, rate in rates.items():
            found[f"device{self.separator}{name}"] = rate
            if self.world_size > 1:
                found[name] = rate * self.world_size
        if self.available_flops and "flops_per_sec" in rates:
            found[f"device{self.separator}mfu"] = rates["flops_per_sec"] / self.available_flops
        return found

    def reset(self) -> None:
        """Forget everything."""
        self._points.clear()
