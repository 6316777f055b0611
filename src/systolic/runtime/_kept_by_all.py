"""Compiled programs of several processes on disk: whose directory it is, every process finds its programs there again.

JAX lets process 0 alone write, so that a directory on a disk of their own would stay empty on all other hosts. And on CPUs its
keys tell processes apart: they hold the list of a process's own cores, of which a program knows nothing (the cores of all
processes are in its options). The programs of one are those of the others, and are read by them.
"""

from __future__ import annotations

import functools
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..distributed import leave_notice, process_index, read_notices
from ..utilities._jax_internals import cache_key, compiler, put_executable_and_time

_MARK = "systolic-directory-"
_NOTICE = "directory of programs"


@functools.cache
def keep_programs_of_all(processor: str) -> None:
    """From now on this process keeps the programs that it compiles, where no other one does it for it.

    Args:
        processor: names the kind of CPU: what was compiled for one kind may not run on another.
    """
    compile_and_write, hash_devices = compiler._compile_and_write_cache, cache_key._hash_accelerator_config

    def compile_and_keep(
        backend: Any, module: Any, devices: Any, options: Any, callbacks: Sequence[Any], name: str, key: str
    ) -> Any:
        began = time.perf_counter()
        executable = compile_and_write(backend, module, devices, options, callbacks, name, key)
        seconds = time.perf_counter() - began
        worth_it = not callbacks and seconds >= jax.config.values["jax_persistent_cache_min_compile_time_secs"]
        if process_index() and worth_it and _is_ours_to_write(devices):
            _write(key, name, executable, backend, seconds)
        return executable

    def hash_kinds(digest: Any, devices: np.ndarray[Any, Any]) -> None:
        if devices.flat[0].platform != "cpu":
            hash_devices(digest, devices)
            return
        digest.update(" ".join([processor, *(device.device_kind for device in devices.flat)]).encode())

    compiler._compile_and_write_cache = compile_and_keep
    cache_key._hash_accelerator_config = hash_kinds


@functools.cache
def tell_directory(directory: str) -> str | None:
    """Tell the other processes which directory this one keeps programs in.

    Args:
        directory: where JAX keeps them; a place with `://` is one that all processes see.

    Returns:
        The name that whoever sees the directory knows it by; None where it cannot be written to, or is no directory.
    """
    if "://" in directory:
        return None
    place = Path(directory)
    try:
        place.mkdir(parents=True, exist_ok=True)
        if not any(place.glob(f"{_MARK}*")):
            (place / f"{_MARK}{uuid.uuid4().hex}").touch(mode=0o600)
    except OSError:
        return None
    # two processes may have made a file each
    identity = min(path.name for path in place.glob(f"{_MARK}*"))
    leave_notice(_NOTICE, identity)
    return identity


def _is_ours_to_write(devices: Any) -> bool:
    """Whether nobody else writes a program: it is for this process's devices alone, or no earlier one sees the directory."""
    own = process_index()
    if all(device.process_index == own for device in devices):
        return True
    identity = tell_directory(jax.config.values["jax_compilation_cache_dir"])
    # One that has not told yet may write it, too: the second one finds the file, and leaves it.
    others = [process for process, other in read_notices(_NOTICE).items() if other == identity]
    return identity is not None and own <= min(others)


def _write(key: str, name: str, executable: Any, backend: Any, seconds: float) -> None:
    try:
        put_executable_and_time(key, name, executable, backend, int(seconds))
    except (OSError, RuntimeError) as error:  # as in JAX: a full disk costs the next run a compilation, and this one nothing
        warnings.warn(f"A compiled program is not kept for the next run: {error}.", stacklevel=2)
