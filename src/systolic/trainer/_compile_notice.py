"""Tells the progress bar and the run's record that a program is being traced and compiled, and how long that may take."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from ..callbacks import ProgressBar
from ..distributed import is_main_process
from ..runtime import expected_seconds, note_seconds
from ._defaults import first_of
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run


class CompileNotice:
    """Listens to an engine of a run.

    Args:
        run: the run; its progress bar is told, where there is one.
        stage: whose step the engine compiles.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run = run
        kind = run.config.devices[0].device_kind if run.config.devices else ""
        self._devices = f"{run.config.num_devices} x {kind}"
        module = type(run.module)
        self._step = f"{module.__module__}.{module.__qualname__}.{stage.step} on {self._devices}"
        self._what = f"the {stage.step.replace('_', ' ')}"
        self._program = ""

    def _bar(self) -> ProgressBar | None:
        return first_of(self._run.config.callbacks, ProgressBar)

    def tracing(self, reason: str) -> None:
        """Tracing begins."""
        self._run.record.begin(f"Tracing {self._what} ({reason})", expected_seconds(f"trace {self._step}"))
        bar = self._bar()
        if bar is not None:
            bar.on_trace_start(self._run.trainer, f"{self._what} ({reason})")

    def compiling(self, reason: str, fingerprint: str) -> None:
        """Compilation begins: of a program that was compiled before, which the cache may have, or of a new one."""
        self._program = hashlib.sha256(f"{fingerprint} {self._devices}".encode()).hexdigest()[:20]
        # a program that was made before will be read, in a time that is known from the second reading on
        is_kept = expected_seconds(f"made {self._program}") is not None
        expected = expected_seconds(f"read {self._program}" if is_kept else f"compile {self._step}")
        self._run.record.begin(f"Compiling {self._what} ({reason})", expected)
        bar = self._bar()
        if bar is not None:
            bar.on_compile_start(self._run.trainer, f"{self._what} ({reason})")

    def finished(self, trace_seconds: float, compile_seconds: float, saved_seconds: float) -> None:
        """Both have ended."""
        self._run.record.done()
        if is_main_process():
            note_seconds(trace_seconds, f"trace {self._step}")
            names = (f"read {self._program}",) if saved_seconds else (f"made {self._program}", f"compile {self._step}")
            note_seconds(compile_seconds, *names)
        bar = self._bar()
        if bar is not None:
            bar.on_compile_end(self._run.trainer, compile_seconds, saved_seconds, trace_seconds)
