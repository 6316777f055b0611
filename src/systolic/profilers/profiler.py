"""The interface of profilers."""

from __future__ import annotations

import contextlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from ..diagnostics import Started
from ..utilities._private import make_directories
from ..utilities.rank_zero import rank_zero_info


class Profiler(ABC):
    """Base class of profilers: override `start` and `stop`, and pass an instance to `Trainer(profiler=...)`.

    The Trainer starts and stops actions around what it does: `"run_training_epoch"`, `"run_training_batch"`,
    `"[_TrainingEpochLoop].train_dataloader_next"`, `"[Strategy]DDPStrategy.training_step"` (the call of the compiled
    step, by the name of Lightning's strategy), and every overridden hook, as `"[Callback]<class>.<hook>"`,
    `"[LightningModule]<class>.<hook>"`.

    Args:
        dirpath: where `describe` writes; default: the Trainer's `log_dir`.
        filename: write the report there (".txt" is appended) instead of logging it.

    Example:
        >>> class Counting(Profiler):
        ...     calls = 0
        ...     def start(self, action_name): self.calls += 1
        ...     def stop(self, action_name): pass
        >>> profiler = Counting()
        >>> with profiler.profile("load"):
        ...     pass
        >>> profiler.calls
        1
    """

    def __init__(self, dirpath: str | os.PathLike[str] | None = None, filename: str | None = None) -> None:
        self.dirpath = dirpath
        self.filename = filename
        self._stage: str | None = None
        self._local_rank: int | None = None
        self._output_file: TextIO | None = None
        self._write_stream: Callable[[str], object] | None = None

    @abstractmethod
    def start(self, action_name: str) -> None:
        """An action begins."""

    @abstractmethod
    def stop(self, action_name: str) -> None:
        """An action has ended."""

    @contextlib.contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Start an action, run the block, stop the action."""
        try:
            self.start(action_name)
            yield action_name
        finally:
            self.stop(action_name)

    def step_started(self, stage: str, result: Started, began: float, compiles: Sequence[Any]) -> None:  # noqa: B027
        """A step was handed to the devices; for profilers that look past the host.

        Args:
            stage: "training", "validation", "test" or "predict".
            result: what the engine returned; its `arrays` are there when the devices are done.
            began: when the call began, in `time.perf_counter()`.
            compiles: the `systolic.compiler.Compile`s that the call caused.
        """

    def expect_steps(self, step: str, count: int | float) -> None:  # noqa: B027
        """A loop is about to begin; for profilers that record some of its steps.

        Args:
            step: the module's method, such as "training_step".
            count: how many batches there are, of all loaders; infinity where nobody knows.
        """

    def batch_done(self, stage: str, began: float, got: float) -> None:  # noqa: B027
        """A batch was worked on: waiting for it began at `began`, it came at `got`, in `time.perf_counter()`."""

    def summary(self) -> str:
        """The report as text; empty when there is nothing to say."""
        return ""

    def describe(self) -> None:
        """Log the report, or write it where a `filename` was given."""
        summary = self.summary()
        if summary:
            self._prepare_streams()
            assert self._write_stream is not None, "it was prepared"
            self._write_stream(summary)
        self._close_streams()

    def _prepare_streams(self) -> None:
        """Open where reports go: profilers written for Lightning call this, and write by `_write_stream`."""
        if self._write_stream is not None:
            return
        if self.filename and self.dirpath:
            self._output_file = self._path(".txt").open("a")
            self._write_stream = self._output_file.write
        else:
            self._write_stream = rank_zero_info

    def _close_streams(self) -> None:
        self._write_stream = None
        if self._output_file is not None:
            self._output_file.close()
            self._output_file = None

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """The Trainer begins a stage ("fit", "validate", "test", "predict").

        Args:
            stage: its name.
            local_rank: the number of this process on its host, which is no part of the names of files: one process reports.
            log_dir: where the Trainer logs.
        """
        self._stage, self._local_rank = stage, local_rank
        if self.dirpath is None and log_dir is not None and "://" not in log_dir:  # profilers write local files
            self.dirpath = log_dir

    def teardown(self, stage: str | None) -> None:
        """The Trainer ends a stage: the file is closed."""
        self._close_streams()

    @property
    def local_rank(self) -> int:
        """The number of this process on its host."""
        return self._local_rank or 0

    def _path(self, extension: str, action_name: str | None = None) -> Path:
        """A file of this profiler: stage, filename and action, without characters that some file system refuses."""
        assert self.dirpath is not None, "a file needs a directory"
        directory = Path(self.dirpath)
        make_directories(directory)
        return directory / self._prepare_filename(action_name, extension)

    def _prepare_filename(self, action_name: str | None = None, extension: str = ".txt") -> str:
        """The last part of that path, under the name by which profilers written for Lightning ask for it."""
        parts = [part for part in (self._stage, self.filename, action_name) if part]
        return re.sub(r'[\\/:*?"<>|\s_]+', "_", "-".join(parts) or "profile") + extension


class PassThroughProfiler(Profiler):
    """Measures nothing: what `trainer.profiler` is when none was asked for."""

    def start(self, action_name: str) -> None:
        """Do nothing."""

    def stop(self, action_name: str) -> None:
        """Do nothing."""
