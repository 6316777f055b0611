"""The door to orbax, which writes and reads arrays that are spread over devices and processes; imported when it is needed."""

from __future__ import annotations

import errno
import importlib
import importlib.util
import os
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from ..distributed import process_index
from ..exceptions import MisconfigurationException
from ..runtime import jax_devices

HostArray = np.ndarray[Any, Any]

_GB_ON_THE_HOST = 1
"""Of a process's part of the state so much is on its host at once while it is written, or one array if that is larger."""


def require_orbax() -> None:
    """Refuse to go on where orbax is not installed; imports nothing of it.

    Raises:
        MisconfigurationException: how to install it.
    """
    if importlib.util.find_spec("orbax") is None or importlib.util.find_spec("orbax.checkpoint") is None:
        raise MisconfigurationException(
            "Checkpoints as directories of shards are written and read by orbax-checkpoint, which is not installed. Install it "
            'with `pip install "systolic[orbax]"`, or keep checkpoints as one file each (TorchCheckpointIO, the default).'
        )


def write(arrays: Mapping[str, jax.Array | HostArray], directory: str) -> None:
    """Write arrays into a new directory: every process the shards that lie on its devices. All processes must call this.

    Args:
        arrays: by names of letters, digits, dots, `-` and `_`.
        directory: absolute.

    Raises:
        OSError: the storage takes no more.
    """
    ocp = _orbax()
    handler = ocp.PyTreeCheckpointHandler(
        use_compression=False,  # weights hardly become smaller, and zstd is slower than a disk
        save_concurrent_gb=_GB_ON_THE_HOST,
        save_device_host_concurrent_gb=_GB_ON_THE_HOST,
    )
    try:
        with ocp.Checkpointer(handler) as checkpointer:
            checkpointer.save(directory, args=ocp.args.PyTreeSave(dict(arrays)))
    except ValueError as error:  # what TensorStore raises for a failed write
        if "No space left" not in str(error):
            raise
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory) from error


def read(directory: str, names: Iterable[str]) -> dict[str, HostArray]:
    """Read whole arrays from a directory to the host; this process does so alone.

    Args:
        directory: absolute.
        names: of the arrays.

    Raises:
        ValueError: there is no such array, or it cannot be read.
    """
    ocp, wanted = _orbax(), list(names)
    alone = ocp.options.MultiprocessingOptions(
        primary_host=process_index(), active_processes={process_index()}, barrier_sync_key_prefix=f"process{process_index()}"
    )
    handler = ocp.PyTreeCheckpointHandler(restore_concurrent_gb=_GB_ON_THE_HOST, multiprocessing_options=alone)
    arguments = ocp.args.PyTreeRestore(
        item=dict.fromkeys(wanted, 0),
        restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in wanted},
        partial_restore=True,
    )
    with ocp.Checkpointer(handler, multiprocessing_options=alone) as checkpointer:
        found = checkpointer.restore(directory, args=arguments)
    for name in wanted:
        if not isinstance(found.get(name), np.ndarray):  # it gives back what stands in the place of an array that is not there
            raise ValueError(f"the array {name!r} is missing")
    return found


def _orbax() -> Any:
    require_orbax()
    jax_devices()  # orbax asks JAX which process this is, and so starts it: now with the platforms that this machine has
    return importlib.import_module("orbax.checkpoint")
