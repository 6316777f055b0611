"""The files through which programs reach TPU chips, and which processes hold them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from ..utilities._processes import Process, open_files, process_ids, read_process

# v2 to v4 appear as /dev/accel0 ..., later chips as VFIO groups, /dev/vfio/0 ... (/dev/vfio/vfio is no chip).
_CHIPS = ("dev/accel[0-9]*", "dev/accel/accel[0-9]*", "dev/vfio/[0-9]*", "dev/vfio/devices/vfio[0-9]*")
# libtpu keeps this file open, and locked, while it drives chips.
_LOCK = "tmp/libtpu_lockfile"


@dataclass(frozen=True)
class Holder:
    """A process and the chip files that it has open."""

    process: Process
    files: tuple[str, ...]

    def __str__(self) -> str:
        """`pid 4711 (user ada, for 2:03:00): python train.py`."""
        process = self.process
        return f"pid {process.pid} (user {process.user}, for {timedelta(seconds=int(process.age_seconds))}): {process.command}"


@dataclass(frozen=True)
class Holders:
    """Who holds the chips.

    Attributes:
        holders: the processes, oldest first.
        hidden: how many processes of other users could not be looked into.
    """

    holders: tuple[Holder, ...]
    hidden: int


def chip_files(root: Path = Path("/")) -> list[Path]:
    """The device files of TPU chips below `root`."""
    return sorted(path for pattern in _CHIPS for path in root.glob(pattern))


def lock_file(root: Path = Path("/")) -> Path | None:
    """The lock file of libtpu, if there is one."""
    path = root / _LOCK
    return path if path.exists() else None


def find_holders(root: Path = Path("/")) -> Holders:
    """The processes, except this one, that have a chip or libtpu's lock file open.

    Args:
        root: the directory whose `dev` and `tmp` are looked at.
    """
    lock = lock_file(root)
    wanted = {os.path.realpath(path) for path in (*chip_files(root), *([lock] if lock else []))}
    if not wanted:
        return Holders((), 0)
    found: list[Holder] = []
    hidden = 0
    for pid in process_ids():
        if pid == os.getpid():
            continue
        files = open_files(pid)
        if files is None:
            hidden += 1
            continue
        held = files & wanted
        process = read_process(pid) if held else None
        if process is not None:
            found.append(Holder(process, tuple(sorted(held))))
    return Holders(tuple(sorted(found, key=lambda holder: holder.process.start_ticks)), hidden)
