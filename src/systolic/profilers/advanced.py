"""Profiler of the Python functions that each action spent its time in."""

from __future__ import annotations

import cProfile
import io
import os
import pstats
from collections import defaultdict

from ..exceptions import MisconfigurationException
from .profiler import Profiler


class AdvancedProfiler(Profiler):
    """Runs Python's cProfile for every action, and reports the functions that took longest.

    Args:
        dirpath: where the report is written; default: the Trainer's `log_dir`.
        filename: write the report there (".txt" is appended) instead of logging it.
        line_count_restriction: how many functions to list per action: a number of them, or a part of all (0.0 to 1.0).
        dump_stats: also write the raw profile of each action into `dirpath`, for tools that read `.prof` files.

    Raises:
        ValueError: an action is stopped without having been started.

    Example:
        >>> profiler = AdvancedProfiler(line_count_restriction=3)
        >>> with profiler.profile("sum"):
        ...     _ = sum(range(10))
        >>> "Profile stats for: sum" in profiler.summary()
        True
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        line_count_restriction: float = 1.0,
        dump_stats: bool = False,
    ) -> None:
        super().__init__(dirpath, filename)
        self.line_count_restriction = line_count_restriction
        self.dump_stats = dump_stats
        self.profiled_actions: defaultdict[str, cProfile.Profile] = defaultdict(cProfile.Profile)
        self._running: list[str] = []

    def start(self, action_name: str) -> None:
        """Profile an action; the action around it is not profiled meanwhile, as Python runs one profile at a time."""
        if self._running:
            self.profiled_actions[self._running[-1]].disable()
        self._running.append(action_name)
        self.profiled_actions[action_name].enable()

    def stop(self, action_name: str) -> None:
        """End an action; the one around it is profiled again."""
        if action_name not in self._running:
            raise ValueError(f"Attempting to stop recording an action ({action_name}) which was never started.")
        self.profiled_actions[self._running[-1]].disable()
        self._running.reverse()
        self._running.remove(action_name)
        self._running.reverse()
        if self._running:
            self.profiled_actions[self._running[-1]].enable()

    def summary(self) -> str:
        """Per action, its functions by cumulative time."""
        texts = [f"{self._stage.upper()} Profiler Report" if self._stage else "Profiler Report"]
        for action, profile in self.profiled_actions.items():
            if self.dump_stats:
                self._dump(action, profile)
            text = io.StringIO()
            stats = pstats.Stats(profile, stream=text).strip_dirs().sort_stats("cumulative")
            stats.print_stats(self.line_count_restriction)
            texts += [f"Profile stats for: {action}", text.getvalue()]
        return "\n".join(texts)

    def _dump(self, action: str, profile: cProfile.Profile) -> None:
        if self.dirpath is None:
            raise MisconfigurationException(
                "AdvancedProfiler(dump_stats=True) needs a directory. Expected `dirpath`, received None. "
                "Pass AdvancedProfiler(dirpath=...)."
            )
        profile.dump_stats(self._path(".prof", action))

    def teardown(self, stage: str | None) -> None:
        """Forget what was measured, so that the next stage starts anew."""
        super().teardown(stage)
        self.profiled_actions.clear()
