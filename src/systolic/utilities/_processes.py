"""Processes of this machine as Linux shows them under /proc, for all who want to know who holds a file."""

from __future__ import annotations

import contextlib
import os
import pwd
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A running process.

    Attributes:
        pid: its number.
        uid: whose it is, as a number.
        user: whose it is, by name.
        command: its command line, words separated by spaces.
        age_seconds: how long it has been running.
        start_ticks: when it was started, in clock ticks since the machine was; with `pid` this names one process for ever.
    """

    pid: int
    uid: int
    user: str
    command: str
    age_seconds: float
    start_ticks: int


def process_ids() -> list[int]:
    """All processes that can be seen from here; a container sees its own."""
    return sorted(int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def read_process(pid: int) -> Process | None:
    """Facts about a process; None when it has ended."""
    try:
        own = _PROC / str(pid)
        uid = _real_uid((own / "status").read_text())
        words = (own / "cmdline").read_bytes().split(b"\0")
        start = int(_stat_fields(pid)[19])
        uptime = float((_PROC / "uptime").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return None
    age = uptime - start / os.sysconf("SC_CLK_TCK")
    command = " ".join(word.decode(errors="replace") for word in words if word)
    return Process(pid, uid, _user_name(uid), command, max(age, 0.0), start)


def open_files(pid: int) -> set[str] | None:
    """The paths that a process has open; None when this user may not know."""
    files: set[str] = set()
    try:
        for descriptor in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                files.add(os.readlink(descriptor))
    except PermissionError:
        return None
    except (FileNotFoundError, ProcessLookupError):  # ended meanwhile
        return files
    return files


def ancestors() -> set[int]:
    """This process, the one that started it, and so on up."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            pid = int(_stat_fields(pid)[1])
        except FileNotFoundError:
            break
    return found


def _stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: proc(5). The second is a name that may hold spaces and brackets."""
    return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()


def _real_uid(status: str) -> int:
    """From /proc/PID/status; the directory's own owner is root for a process that changed its user."""
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:"))


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
