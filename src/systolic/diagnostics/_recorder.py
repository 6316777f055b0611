"""Record of the cost of every step of a run: waiting for data, compiling, executing, and the host's own work."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..compiler import Compile
from ._lines import responsible_line
from ._metrics import Metrics

_KEPT = 2000
_DISTINCT_LINES = 100


class Started(Protocol):
    """A step that was handed to the devices."""

    @property
    def arrays(self) -> Sequence[Any]:
        """Its results, which are there when the devices are done."""
        ...


@dataclass(slots=True)
class Step:
    """One step; times are seconds since the recorder was made.

    Attributes:
        stage: "training", "validation", "test" or "predict".
        number: from 0, within its stage.
        wait_began: when the loop asked for the batch.
        wait: how long it waited for it.
        call_began: when the compiled step was called.
        compile: seconds of tracing, lowering and XLA in that call.
        cause: why it was compiled; empty when it was not.
        execute_began: when the devices began with it; None where that is not known.
        execute: how long they took.
        host: the host's own work for this batch: hooks, logging, the dispatch itself.
        done: when the loop went on to the next batch.
    """

    stage: str
    number: int
    wait_began: float = 0.0
    wait: float = 0.0
    call_began: float = 0.0
    compile: float = 0.0
    cause: str = ""
    execute_began: float | None = None
    execute: float = 0.0
    host: float = 0.0
    done: float = 0.0


class Recorder:
    """Keeps the metrics and the timeline of a run. It watches in a thread when the devices finish, so nothing waits for them.

    Attributes:
        metrics: durations and counters.
        started: `time.perf_counter()` of its first moment.
    """

    def __init__(self) -> None:
        self.metrics = Metrics()
        self.started = time.perf_counter()
        self._first: list[Step] = []
        self._newest: deque[Step] = deque(maxlen=_KEPT)
        self._counts: dict[str, int] = {}
        self._open: dict[str, tuple[Step, float]] = {}
        self._host_thread = threading.get_ident()
        self._blocked = self._elsewhere = 0.0
        self._lines: set[str] = set()
        self._free = self.started
        self._in_flight: deque[tuple[Step, list[Any], float]] = deque()
        self._settling = threading.Lock()
        self._watched: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
        self._watcher = threading.Thread(target=self._watch, name="systolic-profiler", daemon=True)
        self._watcher.start()

    def steps(self) -> list[Step]:
        """The first 2,000 steps and the newest 2,000, in order."""
        return [*self._first, *self._newest]

    def close(self) -> None:
        """Wait for the steps that still run, and stop watching."""
        if self._watcher.is_alive():
            self._watched.put(None)
            self._watcher.join()

    # ---- what the loops tell

    def step_started(self, stage: str, result: Started, began: float, compiles: Sequence[Compile]) -> None:
        """A step was dispatched; see `Profiler.step_started`."""
        ended = time.perf_counter()
        self._settle(began)
        step = self._new_step(stage)
        step.call_began = began - self.started
        for compiled in compiles:
            self._note_compile(step, compiled)
        arrays = [array for array in result.arrays if not array.is_deleted()]
        if all(array.is_ready() for array in arrays):
            # it ended within the call: nothing tells execution and dispatch apart, so the call counts as execution
            with self._settling:
                self._executed(step, began + step.compile, ended)
            self._open[stage] = (step, ended - began)
        else:
            self._in_flight.append((step, arrays, began + step.compile))
            self._watched.put(arrays)
            self._open[stage] = (step, step.compile)

    def batch_done(self, stage: str, began: float, got: float) -> None:
        """The loop has finished with a batch; see `Profiler.batch_done`."""
        done = time.perf_counter()
        self._settle(done)
        step, accounted = self._open.pop(stage, (None, 0.0))
        if step is None:  # a hook ended the epoch before the step
            return
        step.wait_began, step.wait, step.done = began - self.started, got - began, done - self.started
        nested = self._elsewhere if stage == "training" else 0.0
        step.host = max(0.0, done - got - accounted - self._blocked - nested)
        self.metrics.add("DataWaitTime", step.wait, got)
        self.metrics.add("HostOverheadTime", step.host, done)
        self._blocked = 0.0
        self._elsewhere = 0.0 if stage == "training" else self._elsewhere + done - began

    def blocked(self, seconds: float) -> None:
        """The host waited on purpose (simulated cores take one step at a time)."""
        self._blocked += seconds

    # ---- what the runtime tells

    def sent(self, size: int, began: float, ended: float) -> None:
        """Bytes went to the devices."""
        self.metrics.add("TransferToDeviceTime", ended - began, ended)
        self.metrics.count("BytesToDevice", size)

    def fetched(self, size: int, began: float, ended: float) -> None:
        """Bytes came to the host."""
        self.metrics.add("TransferFromDeviceTime", ended - began, ended)
        self.metrics.count("BytesFromDevice", size)
        if threading.get_ident() == self._host_thread:
            self._blocked += ended - began
        line = responsible_line()
        if len(self._lines) < _DISTINCT_LINES:
            self._lines.add(line)
        self.metrics.count(f"HostRead: {line if line in self._lines else 'further lines'}")

    # ---- inside

    def _new_step(self, stage: str) -> Step:
        number = self._counts.get(stage, 0)
        self._counts[stage] = number + 1
        step = Step(stage, number)
        (self._first if len(self._first) < _KEPT else self._newest).append(step)
        return step

    def _note_compile(self, step: Step, compiled: Compile) -> None:
        seconds = compiled.trace_seconds + compiled.compile_seconds
        step.compile += seconds
        step.cause = "; ".join(part for part in (step.cause, compiled.reason) if part)
        self.metrics.add("CompileTime", seconds)
        self.metrics.count("UncachedCompile" if compiled.is_new_executable else "CachedCompile")
        self.metrics.count(f"CompileCause: {compiled.reason}")

    def _executed(self, step: Step, began: float, ended: float) -> None:
        began = max(began, self._free)
        self._free = max(ended, self._free)
        step.execute_began, step.execute = began - self.started, max(0.0, ended - began)
        self.metrics.add("ExecuteTime", step.execute, ended)

    def _watch(self) -> None:
        while True:
            arrays = self._watched.get()
            if arrays is None:
                return
            with contextlib.suppress(RuntimeError):  # it became the state of a later step; a failure reaches the loop itself
                for array in arrays:
                    array.block_until_ready()
            self._settle(time.perf_counter())

    def _settle(self, now: float) -> None:
        """Note the steps that have ended; whoever looks first knows best: a thread may have to wait for its turn."""
        with self._settling:
            ended: list[tuple[Step, float]] = []
            while self._in_flight and all(a.is_deleted() or a.is_ready() for a in self._in_flight[0][1]):
                step, _, began = self._in_flight.popleft()
                ended.append((step, began))
            if not ended:
                return
            # several between two looks: they share the time evenly
            first = max(ended[0][1], self._free)
            share = max(0.0, now - first) / len(ended)
            for index, (step, _) in enumerate(ended):
                self._executed(step, first + index * share, first + (index + 1) * share)

    def as_dict(self) -> dict[str, Any]:
        """Metrics, counters and steps for programs; all times in seconds."""
        return {**self.metrics.as_dict(), "steps": [asdict(step) for step in self.steps()], "counts": dict(self._counts)}
