"""Real processes that hold stand-ins for the device files of TPU chips, below a directory of the test's own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_HOLD = "import fcntl, os, sys\nfiles = [open(path) for path in sys.argv[1:]]\n"
_LOCKED = "fcntl.flock(files[-1], fcntl.LOCK_EX)\n"
_WAIT = "print('holding', flush=True)\nsys.stdin.read()\n"
_STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def make_machine(root: Path, *files: str) -> Path:
    """A directory with these files, such as "dev/accel0"."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


@contextlib.contextmanager
def held(*files: Path, stubborn: bool = False, uid: int | None = None, locked: bool = False) -> Iterator[subprocess.Popen[str]]:
    """A process that has the files open, the last one locked, until the block ends; a stubborn one does not end when asked."""
    become = f"os.setuid({uid})\n" if uid is not None else ""
    process = subprocess.Popen(
        [
            sys.executable,
            "-S",
            "-c",
            (_STUBBORN if stubborn else "") + _HOLD + (_LOCKED if locked else "") + become + _WAIT,
            *map(str, files),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "holding\n"
        yield process
    finally:
        process.kill()
        process.communicate()
