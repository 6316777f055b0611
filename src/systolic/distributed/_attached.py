"""A command that runs elsewhere for as long as its standard input here stays open."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..exceptions import MisconfigurationException
from ._signals import noted_signals

_SECONDS_BETWEEN_LOOKS = 0.05


class Ending(NamedTuple):
    """How a command ended.

    Attributes:
        code: its exit code, 128 + N where signal N ended it.
        interrupted: whether Ctrl-C or SIGTERM had come here before.
    """

    code: int
    interrupted: bool


def run_attached(command: Sequence[str], grace_period: float) -> Ending:
    """Run a command whose output is this process's own; on Ctrl-C or SIGTERM close its input, and wait for it to end.

    A signal would not do: `gcloud` and `ssh` die of it, and the program at the other end goes on. It sees its input end
    instead, also when this process is killed.

    Args:
        command: a program and its arguments.
        grace_period: how many seconds it may take to end then; after a second Ctrl-C none.

    Returns:
        The command's exit code, and whether a signal had come.

    Raises:
        MisconfigurationException: the command cannot be started.

    Example:
        >>> from systolic.distributed import run_attached
        >>> run_attached(["true"], grace_period=1.0)
        Ending(code=0, interrupted=False)
    """
    noted: deque[signal.Signals] = deque()
    with noted_signals(noted):
        try:
            # a session of its own, else Ctrl-C would reach it from the terminal
            process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        except OSError as error:
            raise MisconfigurationException(
                f"{command[0]!r} cannot be started: {error.strerror}. Expected a program that this user may run."
            ) from error
        try:
            return _wait(process, noted, grace_period)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait(process: subprocess.Popen[bytes], noted: deque[signal.Signals], grace_period: float) -> Ending:
    interrupted, deadline = False, None
    assert process.stdin is not None
    with process.stdin as attachment:
        while process.poll() is None:
            while noted:
                number = noted.popleft()
                again, interrupted = interrupted, True
                attachment.close()
                deadline = time.monotonic() + (0 if again and number is signal.SIGINT else grace_period)
            if deadline is not None and time.monotonic() >= deadline:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
    code = process.returncode
    return Ending(code if code >= 0 else 128 - code, interrupted)
