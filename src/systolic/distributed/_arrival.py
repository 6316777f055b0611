"""The wait for the other processes at the beginning: who is waited for is said, and the wait ends with an error."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

from ._failure import EXIT_CODE
from ._peers import Peers

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
    if met.wait(seconds - silent):
        return
    # JAX would abort with a stack of C++ and without a word about who was expected; the main thread is inside of that wait
    sys.stderr.write(
        f"systolic: MisconfigurationException: {who} waited {seconds:g} seconds at {peers.coordinator}, and not all others "
        f"came. Expected: {peers.processes} processes that start the same script and reach that address. See which of them "
        "said nothing: it was not started, has failed before, or cannot reach the host of process 0. For a run of this process "
        "alone, remove the variables that say otherwise.\n"
        f"{_of_slices()}"
    )
    sys.stderr.flush()
    os._exit(EXIT_CODE)


def _of_slices() -> str:
    """A line about variables that an earlier job may have left: whoever obeys them waits for slices that are gone."""
    told = sorted(name for name in os.environ if name.startswith("MEGASCALE_"))
    if not told:
        return ""
    values = ", ".join(f"{name}={os.environ[name]}" for name in told)
    return f"systolic: it was told of several slices by {values}. If an earlier job has left these, unset them.\n"
