"""Cost of something that happens again and again, told in one line."""

from __future__ import annotations

from collections.abc import Callable

from .rank_zero import rank_zero_info

_MEASURED = 20


class TypicalTime:
    """Seconds of the first twenty times, of which the median is told.

    Args:
        line: from "<milliseconds> ms" and "median of 20" to the line.
    """

    def __init__(self, line: Callable[[str, str], str]) -> None:
        self._line = line
        self._seconds: list[float] = []

    @property
    def is_measured(self) -> bool:
        """Whether it has happened before."""
        return bool(self._seconds)

    def add(self, seconds: float) -> None:
        """Note one time; tells the line after the last that is measured."""
        if len(self._seconds) == _MEASURED:
            return
        self._seconds.append(seconds)
        if len(self._seconds) == _MEASURED:
            typical = sorted(self._seconds)[_MEASURED // 2] * 1e3
            rank_zero_info(self._line(f"{typical:.3g} ms", f"median of {_MEASURED}"))
