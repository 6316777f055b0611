"""Debug mode: what the devices did, in numbers, on a page, and as a trace."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import torch
from rich.console import Console

from ..diagnostics import Metrics, Recorder, Started, headline, page
from ..exceptions import MisconfigurationException
from ..runtime import jax_devices, observing
from .profiler import Profiler

THROTTLE = "[Strategy].wait_for_earlier_step"
"""The action of the wait between steps on simulated cores."""


class XLAProfiler(Profiler):
    """Measures compilation, execution, transfers, data waits and host work; also `Trainer(profiler="xla")`.

    At the end of a stage the metrics report is printed in the layout of `torch_xla.debug.metrics.metrics_report()`, and
    saved as `<stage>-<filename>.txt`, `.json` and `.html` (one page with a timeline, which needs no network). During and
    after a run `trainer.profiler.metrics_report()` returns the report. What the profiler costs is in docs/debugging.md.

    ExecuteTime is watched by a thread of its own: no step waits for another because of it. Where a program runs inside
    the call that starts it (small programs on a CPU), the whole call counts as execution.

    Args:
        dirpath: where the files go; default: the Trainer's `log_dir`.
        filename: their name.
        trace_steps: the numbers of the first and the last training step of which a trace for XProf and Perfetto is
            written, into the directory `trace`; its ops carry the names of your modules.
        port: also listen there for XProf's "capture profile"; None starts no server.

    Raises:
        MisconfigurationException: `trace_steps` is no range of steps.

    Example:
        >>> profiler = XLAProfiler(trace_steps=(10, 12))
        >>> profiler.metrics_report()
        ''
    """

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = "xla_profile",
        trace_steps: tuple[int, int] | None = None,
        port: int | None = None,
    ) -> None:
        super().__init__(dirpath, filename)
        if trace_steps is not None and not 0 <= trace_steps[0] <= trace_steps[1]:
            raise MisconfigurationException(
                "Invalid value for argument `trace_steps`. Expected (first, last) with 0 <= first <= last. "
                f"Received: {trace_steps!r}."
            )
        self.trace_steps = trace_steps
        self.port = port
        self.recorder: Recorder | None = None
        self._listening: Any = None
        self._began: dict[str, float] = {}
        self._step_number = -1
        self._tracing = False
        self._annotation: Any = None
        self._stack = contextlib.ExitStack()

    # ---- what the Trainer tells

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Start measuring anew."""
        super().setup(stage, local_rank, log_dir)
        self.recorder = Recorder()
        self._step_number = -1
        self._stack.enter_context(observing(self.recorder))
        if self.port is not None and self._listening is None:
            self._listening = jax.profiler.start_server(self.port)

    def start(self, action_name: str) -> None:
        """Begin an action: training steps may start the trace, your own actions become metrics."""
        self._began[action_name] = time.perf_counter()
        if not _is_step(action_name) or self.trace_steps is None:
            return
        self._step_number += 1
        if self._step_number == self.trace_steps[0]:
            assert self.dirpath is not None, "setup sets the directory"
            jax.profiler.start_trace(Path(self.dirpath) / "trace", create_perfetto_trace=True)
            self._tracing = True
        if self._tracing:
            self._annotation = jax.profiler.StepTraceAnnotation("training_step", step_num=self._step_number)
            self._annotation.__enter__()

    def stop(self, action_name: str) -> None:
        """End an action."""
        seconds = time.perf_counter() - self._began.pop(action_name)
        if self._annotation is not None and _is_step(action_name):
            self._annotation.__exit__(None, None, None)
            self._annotation = None
        if self.recorder is None:
            return
        if action_name == THROTTLE:
            self.recorder.blocked(seconds)
        elif not action_name.startswith(("[", "run_")):
            self.recorder.metrics.add(action_name, seconds)

    def step_started(self, stage: str, result: Started, began: float, compiles: Sequence[Any]) -> None:
        """A step was handed to the devices."""
        assert self.recorder is not None, "setup makes the recorder"
        self.recorder.step_started(stage, result, began, compiles)
        if self._tracing and self.trace_steps is not None and self._step_number >= self.trace_steps[1]:
            jax.block_until_ready(result.arrays)  # host sync: the trace shall hold the whole of its last step
            self._stop_trace()

    def batch_done(self, stage: str, began: float, got: float) -> None:
        """A batch was worked on."""
        assert self.recorder is not None, "setup makes the recorder"
        self.recorder.batch_done(stage, began, got)

    def teardown(self, stage: str | None) -> None:
        """Stop measuring; the numbers stay readable until the next stage."""
        if self._tracing:
            self._stop_trace()
        self._stack.close()

    def _stop_trace(self) -> None:
        self._tracing = False
        jax.profiler.stop_trace()

    # ---- what users read

    @property
    def metrics(self) -> Metrics:
        """Durations and counters; empty before the first run."""
        return self.recorder.metrics if self.recorder is not None else Metrics()

    def metrics_report(self) -> str:
        """The report so far, in torch_xla's layout; may be called at any time."""
        return self.metrics.metrics_report()

    def summary(self) -> str:
        """A sentence on where the time went, and the metrics report."""
        if self.recorder is None:
            return ""
        steps = [step for step in self.recorder.steps() if step.done]
        return f"{headline([s for s in steps if s.stage == 'training'] or steps)}\n\n{self.metrics_report()}"

    def describe(self) -> None:
        """Print the report and save it as text, JSON and HTML."""
        if self.recorder is None:
            return
        self.recorder.close()
        title = f"{self._stage or 'run'}: debug report"
        facts = _facts()
        summary = self.summary()
        paths = [self._path(extension) for extension in (".txt", ".json", ".html")]
        paths[0].write_text(summary)
        paths[1].write_text(json.dumps({**facts, **self.recorder.as_dict()}, indent=1))
        paths[2].write_text(page(self.recorder, title, facts))
        saved = f"Saved as {paths[0]}, .json and .html"
        Console(soft_wrap=True).print(f"{summary}\n{saved}", markup=False, highlight=False)


def _is_step(action_name: str) -> bool:
    return action_name.startswith("[Strategy]") and action_name.endswith(".training_step")


def _facts() -> dict[str, str]:
    devices = jax_devices()
    return {
        "devices": f"{len(devices)} x {devices[0].device_kind}",
        "jax": jax.__version__,
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
