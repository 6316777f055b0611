"""Shows in the progress bar that a program is being traced and compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..callbacks import ProgressBar
from ._defaults import first_of

if TYPE_CHECKING:
    from ._run import Run


class CompileNotice:
    """Tells the progress bar of a run, where there is one."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def _bar(self) -> ProgressBar | None:
        return first_of(self._run.config.callbacks, ProgressBar)

    def tracing(self, reason: str) -> None:
        """Tracing begins."""
        bar = self._bar()
        if bar is not None:
            bar.on_trace_start(self._run.trainer, f"the step ({reason})")

    def compiling(self, reason: str) -> None:
        """Compilation begins."""
        bar = self._bar()
        if bar is not None:
            bar.on_compile_start(self._run.trainer, f"the step ({reason})")

    def finished(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Both have ended."""
        bar = self._bar()
        if bar is not None:
            bar.on_compile_end(self._run.trainer, compile_seconds, saved_seconds, trace_seconds)
