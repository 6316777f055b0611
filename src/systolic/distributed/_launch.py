"""A pod of processes on this machine: start them, show what they say, and end them together."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, TextIO

from ..exceptions import MisconfigurationException
from ._hosts import HOST
from ._peers import COORDINATOR, PROCESS, PROCESSES
from ._signals import noted_signals

_SECONDS_BETWEEN_LOOKS = 0.05
_LAST_WORDS_SECONDS = 5.0
"""How long the others may run after the first failure: they hear of it within half a second, and say so."""

_KEPT_LINES = 200
"""Of each process, for the traceback that is shown last."""


@dataclass
class _Process:
    """One process, with a thread that reads what it says."""

    index: int
    process: subprocess.Popen[bytes]
    reader: threading.Thread
    last_lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process; SIGKILL also to those that it has started."""
        with contextlib.suppress(ProcessLookupError):
            if number is signal.SIGKILL:
                os.killpg(self.process.pid, number)
            elif self.process.poll() is None:
                self.process.send_signal(number)


class Pod:
    """Processes of one run, on simulated cores of this machine's CPU.

    Args:
        command: what each of them runs.
        processes: how many.
        devices_per_process: how many cores each simulates.
        processes_per_host: how many take themselves to be on one host.
        grace_period: how many seconds they may take to end after Ctrl-C or SIGTERM.
        output: where their lines go, each with the number of its process before it.

    Example:
        >>> import sys
        >>> from systolic.distributed import Pod
        >>> Pod([sys.executable, "-c", "print('hello')"], processes=2, devices_per_process=1).run()
        [...] hello
        [...] hello
        0
    """

    def __init__(
        self,
        command: Sequence[str],
        processes: int,
        devices_per_process: int,
        *,
        processes_per_host: int = 1,
        grace_period: float = 30.0,
        output: TextIO | None = None,
    ) -> None:
        self.command = list(command)
        self.processes = processes
        self.devices_per_process = devices_per_process
        self.processes_per_host = processes_per_host
        self.grace_period = grace_period
        self._output = output or sys.stdout
        self._lock = threading.Lock()
        self._signals: deque[signal.Signals] = deque()
        self.interrupted = False

    def run(self) -> int:
        """Run the processes to their end; one that fails ends all.

        Returns:
            The exit code of the first that failed, 128 + N where signal N ended it; 0 where none did.

        Raises:
            MisconfigurationException: the command cannot be started.
        """
        started: list[_Process] = []
        with noted_signals(self._signals):
            try:
                environment = self._environment()
                for index in range(self.processes):
                    started.append(self._start(index, environment))
                first = self._wait(started)
            finally:
                for one in started:
                    one.send(signal.SIGKILL)
                for one in started:
                    one.process.wait()
                    one.reader.join()
        if first is None:
            return 0
        code = first.process.returncode
        if not self.interrupted:
            self._explain(first, code)
        return code if code > 0 else 128 - code

    def _environment(self) -> dict[str, str]:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        return os.environ | {
            COORDINATOR: f"127.0.0.1:{port}",
            PROCESSES: str(self.processes),
            "JAX_NUM_CPU_DEVICES": str(self.devices_per_process),
            "JAX_PLATFORMS": "cpu",
            "PYTHONUNBUFFERED": "1",
        }

    def _start(self, index: int, environment: dict[str, str]) -> _Process:
        try:
            process = subprocess.Popen(
                self.command,
                env=environment | {PROCESS: str(index), HOST: f"host {index // self.processes_per_host}"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # else Ctrl-C would reach it from the terminal, and once more from here
            )
        except OSError as error:
            raise MisconfigurationException(
                f"The command {self.command[0]!r} cannot be started: {error.strerror}. Expected a program with its arguments, "
                "for example: systolic launch --processes 2 -- python train.py"
            ) from error
        assert process.stdout is not None
        one = _Process(index, process, threading.Thread(target=lambda: self._show(one, process.stdout), daemon=True))
        one.reader.start()
        return one

    def _show(self, one: _Process, said: IO[bytes] | None) -> None:
        """In a thread: pass on what a process says, line by line."""
        assert said is not None
        with said:
            for line in said:
                # of a bar that is drawn over and over in its line, how it looked last
                text = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
                one.last_lines.append(text)
                self._write(f"[{one.index}] {text}\n")

    def _write(self, text: str) -> None:
        with self._lock:
            self._output.write(text)
            self._output.flush()

    def _wait(self, started: list[_Process]) -> _Process | None:
        """Wait for all; the first that failed."""
        first, deadline = None, None
        while any(one.process.poll() is None for one in started):
            while self._signals:
                number = self._signals.popleft()
                again, self.interrupted = self.interrupted, True
                deadline = time.monotonic() + (0 if again and number is signal.SIGINT else self.grace_period)
                for one in started:
                    one.send(number)
            first = first or _failed(started)
            if first is not None and deadline is None:
                deadline = time.monotonic() + _LAST_WORDS_SECONDS
            if deadline is not None and time.monotonic() >= deadline:
                for one in started:
                    one.send(signal.SIGKILL)
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        return first or _failed(started)

    def _explain(self, first: _Process, code: int) -> None:
        """The traceback of the process that failed first, after everything that the others said meanwhile."""
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        lines = list(first.last_lines)
        begins = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
        shown = lines[begins[-1] :] if begins else lines[-10:]
        self._write("\n".join((f"systolic launch: process {first.index} ended first, with {how}:", *shown, "")))


def _failed(started: list[_Process]) -> _Process | None:
    return next((one for one in started if one.process.poll() not in (None, 0)), None)
