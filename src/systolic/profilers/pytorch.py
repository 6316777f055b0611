"""PyTorchProfiler: what PyTorch does on the host, op by op."""

from __future__ import annotations

import inspect
import os
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler_util import EventList
from torch.profiler import ProfilerAction, record_function

from ..compiler import is_capture_thread
from ..exceptions import MisconfigurationException
from ..utilities._suggest import suggest
from .profiler import Profiler

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")
_PERIOD = 5
"""Steps of the default schedule: one left out, one to warm up, three recorded."""
_TABLE_ARGUMENTS = set(inspect.signature(EventList.table).parameters) - {"self", "sort_by", "row_limit"}
_OPTIONS = {*inspect.signature(torch.profiler.profile.__init__).parameters} - {"self"} | {"export_to_flame_graph", "metric"}
_NOTE = (
    "PyTorch on the host: loading, hooks, tracing, and the call of the compiled step. The ops of the step run in one XLA "
    'program and are not here: Trainer(profiler="xla") measures them, and XLAProfiler(trace_steps=...) shows each.'
)


class PyTorchProfiler(Profiler):
    """Profiles the host with `torch.profiler`; also `Trainer(profiler="pytorch")`.

    A compiled step is one XLA program, of which PyTorch sees the call only: for what the devices do take `XLAProfiler`. With
    `Trainer(compile=False)` the ops of the step are PyTorch's, and all here.

    Each kind of step counts for the schedule by itself, once: in `fit` training's steps and validation's, without those of the
    sanity check. By default the first two are left out, and three recorded; `schedule=None` records all, as do loops of fewer
    than five steps.

    Args:
        dirpath: where files go; default: the Trainer's `log_dir`.
        filename: write the table there (".txt" is appended) instead of logging it.
        group_by_input_shapes: a row for each combination of shapes; with `record_shapes=True`.
        emit_nvtx: False; NVTX ranges are for ops that PyTorch runs on a GPU.
        export_to_chrome: write a trace for Chrome, Perfetto and TensorBoard.
        row_limit: rows of the table; -1 for all.
        sort_by_key: the column to sort by.
        record_module_names: taken and not needed: modules run when the step is traced, and XLA's trace has their names.
        table_kwargs: further arguments of PyTorch's table.
        **profiler_kwargs: arguments of `torch.profiler.profile`; also `export_to_flame_graph`, with `metric`.

    Raises:
        MisconfigurationException: an unknown `sort_by_key`, a `schedule` that is none, or `emit_nvtx`.
        KeyError: an unknown argument of the table.
        TypeError: an unknown argument of the profiler.

    Example:
        >>> profiler = PyTorchProfiler(row_limit=10, profile_memory=True)
        >>> profiler.summary()
        ''
    """

    STEP_FUNCTIONS = frozenset(_STEPS)
    AVAILABLE_SORT_KEYS = frozenset({
        "cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "cpu_memory_usage", "cuda_memory_usage",
        "self_cpu_memory_usage", "self_cuda_memory_usage", "count",
    })  # fmt: skip

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        emit_nvtx: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = True,
        table_kwargs: dict[str, Any] | None = None,
        **profiler_kwargs: Any,
    ) -> None:
        super().__init__(dirpath, filename)
        if emit_nvtx:
            raise MisconfigurationException(
                "PyTorchProfiler(emit_nvtx=True) marks ops that PyTorch runs on a GPU, and XLA runs them here. Leave it out, "
                'and use Trainer(profiler="xla").'
            )
        self._sort_by_key = _require_sort_key(sort_by_key or "cpu_time_total", self.AVAILABLE_SORT_KEYS)
        self._table_kwargs = _require_table_arguments(table_kwargs or {})
        for name in profiler_kwargs:
            if name not in _OPTIONS:
                known = ", ".join(sorted(_OPTIONS))
                raise TypeError(
                    f"PyTorchProfiler got an unknown argument `{name}`.{suggest(name, _OPTIONS)} Known are: {known}."
                )
        self._group_by_input_shapes = group_by_input_shapes and profiler_kwargs.get("record_shapes", False)
        self._export_to_chrome = export_to_chrome
        self._row_limit = row_limit
        self._export_to_flame_graph: bool = profiler_kwargs.pop("export_to_flame_graph", False)
        self._metric: str = profiler_kwargs.pop("metric", "self_cpu_time_total")
        self._options = {"activities": [torch.profiler.ProfilerActivity.CPU], **profiler_kwargs}
        self._by_default = "schedule" not in profiler_kwargs
        schedule = self._options.pop("schedule", torch.profiler.schedule(wait=1, warmup=1, active=3))
        if schedule is not None:
            _require_schedule(schedule)
        self._schedule = None if schedule is None else _ScheduleByStep(schedule)
        if self._export_to_flame_graph:
            self._options["with_stack"] = True
        self._options.setdefault("on_trace_ready", self._write)
        self.profiler: torch.profiler.profile | None = None
        self.function_events: EventList | None = None
        self._open: dict[str, record_function] = {}
        self._step: str | None = None

    def start(self, action_name: str) -> None:
        """An action begins; the first starts PyTorch's profiler."""
        if is_capture_thread():  # would become part of the program
            return
        if self.profiler is None:
            if self._schedule is not None:
                self._schedule.begin(self._stage)
            self.profiler = torch.profiler.profile(**self._options, schedule=self._schedule)
            self.profiler.start()
            self.function_events = None
        if action_name not in self._open:
            self._open[action_name] = record_function(f"[pl][profile]{action_name}")
            self._open[action_name].__enter__()

    def stop(self, action_name: str) -> None:
        """An action has ended; the call of a step counts for the schedule."""
        opened = self._open.pop(action_name, None)
        if opened is not None:
            opened.__exit__(None, None, None)
        step = action_name.rpartition(".")[2]
        if self.profiler is not None and step in self.STEP_FUNCTIONS:
            self._step = step
            if self._schedule is not None:
                self._schedule.done(step)
            self.profiler.step()

    def expect_steps(self, step: str, count: int | float) -> None:
        """Record all of a run that the default schedule would leave out."""
        if not self._by_default or not 0 < count < _PERIOD:
            return
        self._by_default = False
        warnings.warn(
            f"PyTorchProfiler: {count} batches of {step} are not enough steps to properly record traces by the default "
            "schedule, so all of them are recorded.",
            stacklevel=2,
        )
        self._schedule = None
        if self.profiler is not None:  # begun by the hooks before
            self._close_actions()
            self.profiler.stop()
            self.profiler = None

    def _close_actions(self) -> None:
        for action_name in reversed(list(self._open)):
            self._open.pop(action_name).__exit__(None, None, None)

    def _write(self, profiler: torch.profiler.profile) -> None:
        """Write what was recorded in a period of the schedule."""
        self.function_events = profiler.events()
        if self.dirpath is None:
            warnings.warn("PyTorchProfiler wrote no trace: it has no `dirpath`, and the run has no directory.", stacklevel=2)
            return
        path = self._path("", self._step)
        if self._export_to_chrome:
            torch.profiler.tensorboard_trace_handler(str(path.parent), path.name)(profiler)
        if self._export_to_flame_graph:
            profiler.export_stacks(str(Path(f"{path}.stack")), metric=self._metric)

    def _finish(self) -> None:
        self._close_actions()
        if self.profiler is None:
            return
        profiler, self.profiler = self.profiler, None
        profiler.stop()
        if self.function_events is None and profiler.profiler is not None:
            self.function_events = profiler.events()
        if not self.function_events:
            warnings.warn(
                "PyTorchProfiler recorded nothing: its schedule leaves out the first steps, and the run had no more. Use "
                "schedule=None to record all.",
                stacklevel=3,
            )

    def summary(self) -> str:
        """The table of ops; empty when nothing was recorded."""
        self._finish()
        if not self.function_events:
            return ""
        averages = self.function_events.key_averages(group_by_input_shapes=self._group_by_input_shapes)
        table = averages.table(sort_by=self._sort_by_key, row_limit=self._row_limit, **self._table_kwargs)
        return f"{_NOTE}\n{table}"

    def teardown(self, stage: str | None) -> None:
        """The Trainer ends a stage."""
        self._finish()
        super().teardown(stage)

    def __getstate__(self) -> dict[str, Any]:
        # what is recorded belongs to this process
        return {**vars(self), "profiler": None, "function_events": None, "_open": {}}


class _ScheduleByStep:
    """A schedule that each kind of step goes through once, by its own count: PyTorch counts all of them together.

    Args:
        schedule: says for a number of steps what to do next.
    """

    def __init__(self, schedule: Callable[[int], ProfilerAction]) -> None:
        self._schedule = schedule
        self.begin(None)

    def begin(self, stage: str | None) -> None:
        """Count anew.

        Args:
            stage: "fit", "validate", "test" or "predict": in fit the validation before training does not count.
        """
        self._step: str | None = None
        self._counts, self._recorded, self._before = Counter[str](), set[str](), ProfilerAction.NONE
        self._waits_for_training = stage == "fit"

    def done(self, step: str) -> None:
        """A step has ended, of which PyTorch is told next."""
        self._step = step
        self._waits_for_training &= step != "training_step"
        if not self._waits_for_training:
            self._counts[step] += 1

    def __call__(self, steps: int) -> ProfilerAction:
        """PyTorch's question for what to do in the next step.

        Args:
            steps: how many there were, of all kinds.
        """
        if self._step is None or self._step in self._recorded:
            return ProfilerAction.NONE
        action = self._schedule(self._counts[self._step])
        if self._before is ProfilerAction.RECORD and action is ProfilerAction.WARMUP:
            action = ProfilerAction.RECORD  # of a loop that another one interrupts: PyTorch does not go back to warming up
        if action is ProfilerAction.RECORD_AND_SAVE:
            self._recorded.add(self._step)
        self._before = action
        return action


def _require_sort_key(key: str, known: frozenset[str]) -> str:
    if key not in known:
        raise MisconfigurationException(f"Found sort_by_key: {key}. Should be within {sorted(known)}.{suggest(key, known)}")
    return key


def _require_table_arguments(given: dict[str, Any]) -> dict[str, Any]:
    for key in given:
        if key in ("sort_by", "row_limit"):
            raise KeyError(
                f"Found invalid table_kwargs key: {key}. This is already a positional argument of the Profiler. Give "
                f"PyTorchProfiler({'sort_by_key' if key == 'sort_by' else key}=...)."
            )
        if key not in _TABLE_ARGUMENTS:
            raise KeyError(f"Found invalid table_kwargs key: {key}. Should be within {sorted(_TABLE_ARGUMENTS)}.")
    return given


def _require_schedule(schedule: Callable[[int], object] | object) -> None:
    if not callable(schedule):
        raise MisconfigurationException(f"Schedule should be a callable. Found: {schedule}. See torch.profiler.schedule.")
    action = schedule(0)
    if not isinstance(action, ProfilerAction):
        raise MisconfigurationException(f"Schedule should return a `torch.profiler.ProfilerAction`. Found: {action}.")
