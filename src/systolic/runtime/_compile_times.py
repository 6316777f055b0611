"""Durations of earlier traces and compilations, beside the programs that they made: what the next run may expect."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import jax

from ._compile_cache import keep_compiled_programs

_FILE = "systolic-times.json"
_MOST = 500
_WORTH_KEEPING_SECONDS = 0.5


def expected_seconds(name: str) -> float | None:
    """How long something took the last time, in this run or an earlier one; None if nobody knows.

    Args:
        name: as it was noted.
    """
    file = _file()
    return _read(file).get(name) if file is not None else None


def note_seconds(seconds: float, *names: str) -> None:
    """Keep how long something took, under each of these names; what took less than half a second is not worth a file."""
    file = _file()
    if file is None or seconds < _WORTH_KEEPING_SECONDS or not file.parent.is_dir():
        return
    times = _read(file)
    for name in names:
        times.pop(name, None)  # the newest come last
        times[name] = round(seconds, 2)
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    with contextlib.suppress(OSError):  # without room on the disk the next run expects nothing
        temporary.write_text(json.dumps(dict(list(times.items())[-_MOST:])))
        temporary.replace(file)


def _file() -> Path | None:
    """The file, where JAX keeps programs in a directory of this machine."""
    keep_compiled_programs()
    directory = jax.config.values["jax_compilation_cache_dir"]
    kept = directory and jax.config.values["jax_enable_compilation_cache"] and "://" not in directory
    return Path(directory) / _FILE if kept else None


def _read(file: Path) -> dict[str, float]:
    """The durations; none where the file is not there, or was damaged."""
    try:
        found: Any = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: seconds for name, seconds in found.items() if isinstance(seconds, int | float) and seconds > 0}
