"""How long each action took."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence

from .profiler import Profiler


class SimpleProfiler(Profiler):
    """Measures the duration of every action on the host, and reports means and totals at the end.

    Starting a step only starts it: the devices work on while the host goes on. What the devices did is in the report
    of `Trainer(profiler="xla")`.

    Args:
        dirpath: where the report is written; default: the Trainer's `log_dir`.
        filename: write the report there (".txt" is appended) instead of logging it.
        extended: also report the number of calls and the share of the whole time.

    Raises:
        ValueError: an action is started twice, or stopped without having been started.

    Example:
        >>> profiler = SimpleProfiler()
        >>> with profiler.profile("load"):
        ...     pass
        >>> len(profiler.recorded_durations["load"])
        1
    """

    def __init__(
        self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None, extended: bool = True
    ) -> None:
        super().__init__(dirpath, filename)
        self.extended = extended
        self.current_actions: dict[str, float] = {}
        self.recorded_durations: defaultdict[str, list[float]] = defaultdict(list)
        self.start_time = time.perf_counter()

    def start(self, action_name: str) -> None:
        """Start the clock of an action."""
        if action_name in self.current_actions:
            raise ValueError(f"Attempted to start {action_name}, which has already started. Stop it first.")
        self.current_actions[action_name] = time.perf_counter()

    def stop(self, action_name: str) -> None:
        """Stop the clock of an action."""
        ended = time.perf_counter()
        if action_name not in self.current_actions:
            raise ValueError(f"Attempting to stop recording an action ({action_name}) which was never started.")
        self.recorded_durations[action_name].append(ended - self.current_actions.pop(action_name))

    def summary(self) -> str:
        """A table with one row per action, the most expensive first."""
        elapsed = time.perf_counter() - self.start_time
        rows = [(name, sum(d) / len(d), len(d), sum(d)) for name, d in self.recorded_durations.items()]
        rows.sort(key=lambda row: row[3] if self.extended else row[1], reverse=True)
        title = f"{self._stage.upper()} Profiler Report" if self._stage else "Profiler Report"
        if not self.extended:
            header = ("Action", "Mean duration (s)", "Total time (s)")
            return f"{title}\n\n{_table(header, [(n, f'{mean:.5}', f'{total:.5}') for n, mean, _, total in rows])}\n"
        header = ("Action", "Mean duration (s)", "Num calls", "Total time (s)", "Percentage %")
        total = ("Total", "-", str(sum(row[2] for row in rows)), f"{elapsed:.5}", "100 %")
        body = [(n, f"{mean:.5}", str(calls), f"{t:.5}", f"{100 * t / elapsed:.5}") for n, mean, calls, t in rows]
        return f"{title}\n\n{_table(header, body, [total])}\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], totals: Sequence[Sequence[str]] = ()) -> str:
    """Columns as Lightning's report has them: the first as wide as its longest cell, the others of 15 characters."""
    first = max((len(row[0]) for row in rows), default=0)
    head = _row(header, first)
    line = "-" * (len(head) + 1)
    above = [text for cells in totals for text in (_row(cells, first), line)]
    return "\n".join([line, head, line, *above, *(_row(cells, first) for cells in rows), line])


def _row(cells: Sequence[str], first: int) -> str:
    widths = [first, *[15] * (len(cells) - 1)]
    return "".join(f"|  {cell:<{width}}\t" for cell, width in zip(cells, widths, strict=True)).expandtabs() + "|"
