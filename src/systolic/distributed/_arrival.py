"""The wait for the other processes at the beginning: who is waited for is said, and the wait ends with an error."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

from ._arrived import arrived, is_connected
from ._last_words import EXIT_CODE, first_is_gone
from ._peers import Peers, told_of_slices

_SECONDS_OF_SILENCE = 10
_SECONDS_BETWEEN_CALLS, _CONNECT_SECONDS = 0.2, 5.0
_SECONDS_TO_COME_BACK = 15
"""For who was here and is gone: a network that stumbled connects again, and a process that was started again comes back."""


@contextlib.contextmanager
def waiting_for(peers: Peers, seconds: float) -> Iterator[None]:
    """Inside, the processes meet; a process whose peers do not come in time, or leave before all have met, ends with an error.

    Args:
        peers: who is expected.
        seconds: how long to wait.
    """
    met, wait = threading.Event(), _Wait(peers, seconds)
    watching = threading.Thread(target=wait.watch, args=(met,), name="systolic-arrival", daemon=True)
    watching.start()
    try:
        wait.reach_first()
        yield
    finally:
        met.set()
        watching.join()


class _Wait:
    """The wait of one process."""

    def __init__(self, peers: Peers, seconds: float) -> None:
        self._peers, self._seconds = peers, seconds
        self._who = f"process {peers.process} of {peers.processes} (told by {peers.told_by})"
        self._seen: Counter[str] | None = None
        self._came: Counter[str] | None = None
        self._was_connected = False
        self._complete_at = time.monotonic()

    def reach_first(self) -> None:
        """Wait until process 0 is there: one that dies just when all meet is known to have been, however short that was."""
        while self._peers.process:
            try:
                socket.create_connection((self._peers.host, self._peers.port), _CONNECT_SECONDS).close()
            except OSError:
                time.sleep(_SECONDS_BETWEEN_CALLS)  # the thread ends the process in time
            else:
                self._was_connected = True
                return

    def watch(self, met: threading.Event) -> None:
        """In a thread, until all have met."""
        began, told = time.monotonic(), False
        while not met.wait(min(1.0, self._seconds / 4)):
            waited = time.monotonic() - began
            if not told and waited >= min(_SECONDS_OF_SILENCE, self._seconds / 2):
                told = True
                sys.stderr.write(
                    f"systolic: {self._who} waits at {self._peers.coordinator} for the others. Is the script started on all "
                    "hosts?\n"
                )
            gone = self._gone()
            if gone or waited >= self._seconds:
                # the main thread is inside of JAX's wait, which would abort with a stack of C++ and without a word of it
                sys.stderr.write(gone or self._in_vain())
                sys.stderr.flush()
                os._exit(EXIT_CODE)

    def _gone(self) -> str:
        """The last words where one that was here has not been here for a while."""
        missing = self._left() if self._peers.process == 0 else self._missing_first()
        if not missing:
            self._complete_at = time.monotonic()
        return missing if time.monotonic() - self._complete_at >= _SECONDS_TO_COME_BACK else ""

    def _left(self) -> str:
        """Of process 0: notes who comes, and says who of them is gone now."""
        now = arrived(self._peers.port)
        if now is None:
            return ""
        # seen twice: a process calls once before it stays
        self._came, self._seen = (self._came or Counter()) | (now & (self._seen or Counter())), now
        gone = self._came - now
        if not gone:
            return ""
        return (
            f"systolic: {self._who} waits for the others, and of those that had come {_counted(gone)} left before all were "
            f"there: killed, failed, or its host or the network did. Its own output says more. Start the same command again; "
            "ckpt_path='last' goes on from the last save.\n"
        )

    def _missing_first(self) -> str:
        """Of the others: what process 0 leaves behind where it was here."""
        gone = self._was_connected and is_connected(self._peers.port) is False
        return first_is_gone(self._peers.process) if gone else ""

    def _in_vain(self) -> str:
        peers = self._peers
        return (
            f"systolic: MisconfigurationException: {self._who} waited {self._seconds:g} seconds at {peers.coordinator}, and "
            f"not all others came. Expected: {peers.processes} processes that start the same script and reach that address. "
            f"{self._of_others()} Another one was not started, has failed before, or cannot reach the host of process 0. "
            "For a run of this process alone, remove the variables that say otherwise. "
            f"{told_of_slices(os.environ)}\n"
        )

    def _of_others(self) -> str:
        """A sentence about the others that have reached process 0, by their addresses."""
        if self._peers.process:
            return "The message of process 0 says who came."
        if self._came is None:
            return "See which of them said nothing."
        came = self._came
        return f"Came: {came.total()} of the {self._peers.processes - 1} others{': ' if came else ''}{_counted(came)}."


def _counted(addresses: Counter[str]) -> str:
    several = (f"{address} ({n} processes)" if n > 1 else address for address, n in sorted(addresses.items()))
    return ", ".join(several)
