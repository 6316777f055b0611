"""Record of a run while it goes on, and the file that it leaves beside its logger's files."""

from __future__ import annotations

import contextlib
import os
import platform
import socket
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import torch

from ..callbacks import ProgressBar
from ..callbacks._checkpoint_names import default_directory
from ..callbacks.progress._notice import telling
from ..checkpoint import is_remote, require_path
from ..diagnostics import MOST_RUNS, RUN_FILE, SAVING, Document, RunRecord, read_runs, write_runs
from ..distributed import is_main_process, local_devices, process_count
from ..exceptions import MisconfigurationException
from ..loggers import DummyLogger
from ..utilities._host_memory import resident_bytes
from ._defaults import first_of, has_versions

if TYPE_CHECKING:
    from ._run import Run

_LONGEST_BETWEEN_WRITES = 10.0
_SHARE_OF_TIME = 0.005
_LONGEST_ERROR = 500


def started_record(before: Run | None) -> RunRecord:
    """Record of a run that begins now, which keeps those of the runs of its Trainer before it."""
    return RunRecord(() if before is None else before.record.ended)


@contextlib.contextmanager
def recorded(run: Run) -> Iterator[None]:
    """While a run goes on, its record is kept up to date in its directory; afterwards it says how the run ended."""
    keeper, error = _Keeper(run), ""
    run.record.tell = keeper.tell
    try:
        yield
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}".removesuffix(": ")[:_LONGEST_ERROR]
        raise
    finally:
        keeper.end(error)


@contextlib.contextmanager
def saving(run: Run, path: str | os.PathLike[str]) -> Iterator[None]:
    """Inside, a checkpoint is saved, which the record notes."""
    began, where, later = time.perf_counter(), require_path(path), run.config.checkpoint_io.writes_later
    with run.record.within(SAVING, f"Saving {os.path.basename(where)}"):
        yield
    is_there = not later and not is_remote(where) and os.path.isfile(where)
    size = os.path.getsize(where) if is_there else None
    run.record.saved(where, run.counters.global_step, time.perf_counter() - began, size, later)


def told(run: Run, text: str) -> contextlib.AbstractContextManager[None]:
    """Inside, before there is a progress bar, something of the user's is run, which is told of if it takes long."""
    shows = is_main_process() and first_of(run.config.callbacks, ProgressBar) is not None
    return telling(text) if shows else contextlib.nullcontext()


def run_directory(run: Run) -> Path | None:
    """Directory that a run's logger has for this run alone; None where there is none on this machine."""
    logger = run.config.loggers[0] if run.config.loggers else None
    if logger is None or isinstance(logger, DummyLogger):
        return None
    where = run.config.log_dir if has_versions(logger) else os.path.dirname(default_directory(run.trainer))
    return None if where is None or is_remote(where) else Path(where)


def documents(run: Run) -> list[Document]:
    """The runs of a Trainer so far, and those that its directory tells of besides, oldest first."""
    own = [*run.record.ended, *([_document(run, "running", "")] if run.record.is_open and run.call is not None else [])]
    directory = run_directory(run)
    return [*(_of_others(directory, own) if directory is not None else ()), *own]


def _of_others(directory: Path, own: list[Document]) -> list[Document]:
    """Runs of other Trainers in a directory: a file that nobody can read is replaced, with a warning."""
    if not (directory / RUN_FILE).is_file():
        return []
    known = {(run["started"], run["process"]) for run in own}
    try:
        return [run for run in read_runs(directory) if (run["started"], run["process"]) not in known]
    except MisconfigurationException as error:
        warnings.warn(f"{error} This run replaces it.", stacklevel=2)
        return []


class _Keeper:
    """Writes a run's record now and then: at most every ten seconds, and for at most 0.5% of the time.

    Only the first process writes, only into a directory that the logger has made, and nothing waits for the disk.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._due = 0.0
        self._earlier: list[Document] | None = None
        self._writes = is_main_process()

    def tell(self) -> None:
        """Note the memory in use, and write when it is time to; neither waits for the devices."""
        run = self._run
        run.record.memory(_memory_in_use(run))
        if self._writes and time.perf_counter() >= self._due:
            began = time.perf_counter()
            self._write("running", "")
            now = time.perf_counter()
            pause = min(_LONGEST_BETWEEN_WRITES, max(run.record.elapsed(), 1.0))
            self._due = now + max(pause, (now - began) / _SHARE_OF_TIME)

    def end(self, error: str) -> None:
        """Close the record."""
        run = self._run
        run.record.is_open, run.record.tell = False, _nobody
        status = "interrupted" if error else "finished"
        if self._writes:
            self._write(status, error)
        run.record.ended.append(_document(run, status, error))
        del run.record.ended[:-MOST_RUNS]

    def _write(self, status: str, error: str) -> None:
        directory = run_directory(self._run)
        if directory is None or not directory.is_dir():
            return
        own = [*self._run.record.ended, _document(self._run, status, error)]
        if self._earlier is None:
            self._earlier = _of_others(directory, own)
        try:
            write_runs(directory, [*self._earlier, *own])
        except OSError as why:
            self._writes = False
            warnings.warn(f"{directory / RUN_FILE} cannot be written, and the run goes on without: {why}", stacklevel=2)


def _document(run: Run, status: str, error: str) -> Document:
    assert run.call is not None, "a run that is recorded has a call"
    counters = run.counters
    return {
        "method": run.call.stage.fn.value,
        "model": type(run.call.module).__name__,
        "status": status,
        "error": error,
        "updated": time.time(),
        "process": f"{socket.gethostname()}:{os.getpid()}",
        "epoch": counters.epoch,
        "global_step": counters.global_step,
        "compiled": run.config.compile,
        "directory": str(run_directory(run) or ""),
        "facts": _facts(run),
        **run.record.as_dict(),
    }


def _facts(run: Run) -> dict[str, str]:
    from .. import __version__

    config = run.config
    kind = config.devices[0].device_kind if config.devices else "eager PyTorch"
    return {
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.record.started)),
        "devices": f"{config.num_devices} x {kind}",
        "processes": str(process_count()),
        "precision": config.numerics.name,
        "systolic": __version__,
        "torch": torch.__version__,
        "jax": jax.__version__,
        "Python": platform.python_version(),
    }


def _memory_in_use(run: Run) -> dict[str, float]:
    """Bytes by name: of the device that holds most, as its allocator counts, and of this process."""
    found = {"process": float(resident_bytes())}
    counted = [device.memory_stats() or {} for device in local_devices(run.config.devices)]
    for key, name in (("bytes_in_use", "device, in use"), ("peak_bytes_in_use", "device, peak")):
        known = [one[key] for one in counted if key in one]
        if known:
            found[name] = float(max(known))
    return found


def _nobody() -> None:
    pass
