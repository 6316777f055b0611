"""One question after every batch of several processes: who has a reason to end, who runs another step, who is slow."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...diagnostics import AdviceWarning
from ...distributed import gather, newest_step, require_same, seconds_waited
from ...utilities.rank_zero import rank_zero_warn

if TYPE_CHECKING:
    from .._run import Run

_WINDOW = 20
"""Batches after which the processes' times are compared: of a median of so many one that compiles is no part."""

_RATIO = 1.8
_SHARE = 0.1
_SECONDS = 3e-3
"""Less a batch is no slowness that anybody could do something about."""


@dataclass(frozen=True)
class _Told:
    """A process after a batch, as it tells the others."""

    ends: bool
    step: dict[str, str]
    seconds: float


class Together:
    """Keeps the processes of a run together, batch by batch; with a single process it does nothing.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began, self._waited = time.perf_counter(), 0.0
        self._seconds = 0.0
        self._times: deque[Sequence[float]] = deque(maxlen=_WINDOW)
        self._since = time.perf_counter()
        self._named: set[int] = set()

    def dispatched(self) -> None:
        """A batch was read and its step dispatched: the seconds since the last one are this host's own."""
        self._seconds = time.perf_counter() - self._began - (seconds_waited() - self._waited)

    def after_batch(self, ends: bool) -> bool:
        """Meet the other processes after a batch; all must call this after the same one.

        Args:
            ends: whether this process has a reason to end.

        Returns:
            Whether one of them has.

        Raises:
            MisconfigurationException: they run different steps.
        """
        found = gather("conclude a batch", _Told(ends, newest_step(), self._seconds))
        if any(one.step != found[0].step for one in found):
            advice = (
                "Look for the rank, the time or the host in numbers and conditions of the step, and in what callbacks change."
            )
            require_same("the step that they run", newest_step(), advice)
        if self._run.config.advice:
            self._compare([one.seconds for one in found])
        self._began, self._waited = time.perf_counter(), seconds_waited()
        return any(one.ends for one in found)

    def _compare(self, seconds: Sequence[float]) -> None:
        self._times.append(seconds)
        if len(self._times) < _WINDOW:
            return
        now = time.perf_counter()
        whole, self._since = (now - self._since) / _WINDOW, now
        medians = [statistics.median(times) for times in zip(*self._times, strict=True)]
        self._times.clear()
        for process, own in enumerate(medians):
            others = statistics.median(medians[:process] + medians[process + 1 :])
            slow = own > _RATIO * others and own - others > max(_SECONDS, _SHARE * whole)
            if slow and process not in self._named:
                self._named.add(process)
                rank_zero_warn(
                    f"Process {process} is slow: it takes {own * 1e3:.3g} ms to read a batch and start its step, the others "
                    f"{others * 1e3:.3g} ms, and all wait for it: {whole * 1e3:.3g} ms a batch. Look at its host: data that is "
                    "far away, fewer processors, other programs.",
                    category=AdviceWarning,
                )
