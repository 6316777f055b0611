"""The files through which programs reach TPU chips, and which processes hold them."""

from __future__ import annotations

import fcntl
import os
import stat
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
    """The lock file of libtpu, if there is one: a regular file. The directory is everybody's, who may put a link there."""
    path = root / _LOCK
    try:
        return path if stat.S_ISREG(path.lstat().st_mode) else None
    except OSError:
        return None


def is_locked(lock: Path) -> bool:
    """Whether a process holds the lock on a lock file that is this user's or root's."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.getuid()):
            return False
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # given back when it is closed
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def find_holders(root: Path = Path("/")) -> Holders:
    """The processes, except this one, that have a chip open.

    libtpu's lock file makes nobody a holder: everybody may open it, or put something else in its place. Where it is really
    locked, it is told among the files of those that have a chip, too.

    Args:
        root: the directory whose `dev` and `tmp` are looked at.
    """
    lock = lock_file(root)
    chips = {os.path.realpath(path) for path in chip_files(root)}
    if not chips:
        return Holders((), 0)
    locks = {str(lock.absolute())} if lock is not None and is_locked(lock) else set()
    found: list[Holder] = []
    hidden = 0
    for pid in process_ids():
        if pid == os.getpid():
            continue
        files = open_files(pid)
        if files is None:
            hidden += 1
            continue
        held = files & chips
        process = read_process(pid) if held else None
        if process is not None:
            found.append(Holder(process, tuple(sorted(held | files & locks))))
    return Holders(tuple(sorted(found, key=lambda holder: holder.process.start_ticks)), hidden)
