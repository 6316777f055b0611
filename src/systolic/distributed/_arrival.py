"""The wait for the other processes at the beginning: who is waited for is said, and the wait ends with an error."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

from ._arrived import arrived
from ._last_words import EXIT_CODE
from ._peers import Peers, told_of_slices

_SECONDS_OF_SILENCE = 10


@contextlib.contextmanager
def waiting_for(peers: Peers, seconds: float) -> Iterator[None]:
    """Inside, the processes meet; a process whose peers do not come in time ends with an error.

    Args:
        peers: who is expected.
        seconds: how long to wait.
    """
    met = threading.Event()
    watching = threading.Thread(target=_watch, args=(met, peers, seconds), name="systolic-arrival", daemon=True)
    watching.start()
    try:
        yield
    finally:
        met.set()
        watching.join()


def _watch(met: threading.Event, peers: Peers, seconds: float) -> None:
    silent = min(_SECONDS_OF_SILENCE, seconds / 2)
    who = f"process {peers.process} of {peers.processes} (told by {peers.told_by})"
    if met.wait(silent):
        return
    sys.stderr.write(f"systolic: {who} waits at {peers.coordinator} for the others. Is the script started on all hosts?\n")
    came = _until(met, seconds - silent, peers)
    if met.is_set():
        return
    # JAX would abort with a stack of C++ and without a word about who was expected; the main thread is inside of that wait
    sys.stderr.write(
        f"systolic: MisconfigurationException: {who} waited {seconds:g} seconds at {peers.coordinator}, and not all others "
        f"came. Expected: {peers.processes} processes that start the same script and reach that address. "
        f"{_of_others(peers, came)} Another one was not started, has failed before, or cannot reach the host of process 0. "
        "For a run of this process alone, remove the variables that say otherwise. "
        f"{told_of_slices(os.environ)}\n"
    )
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def _until(met: threading.Event, seconds: float, peers: Peers) -> Counter[str] | None:
    """Wait, and note at process 0 who comes meanwhile: who waited longer has given up before the end."""
    came: Counter[str] | None = None
    ends = time.monotonic() + seconds
    while not met.wait(min(1.0, max(0.0, ends - time.monotonic()))) and time.monotonic() < ends:
        now = None if peers.process else arrived(peers.port)
        came = now if came is None or now is None else came | now
    return came


def _of_others(peers: Peers, came: Counter[str] | None) -> str:
    """A sentence about the others that have reached process 0, by their addresses."""
    if peers.process:
        return "The message of process 0 says who came."
    if came is None:
        return "See which of them said nothing."
    several = (f"{address} ({count} processes)" if count > 1 else address for address, count in sorted(came.items()))
    return f"Came: {came.total()} of the {peers.processes - 1} others{': ' if came else ''}{', '.join(several)}."
