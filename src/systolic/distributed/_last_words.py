"""The first process dies while the others connect: JAX aborts them in a thread of C++ with a stack; these words name it.

From the moment that JAX is connected its client aborts the process as soon as the service is gone. `FailureWatch` is faster
than that, but it starts after the connection. Python's own handlers of signals run between two of Python's instructions, too
late for an abort, so this one is a function of C, through ctypes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Iterator

from ._peers import Peers

EXIT_CODE = 1
_CONNECT_SECONDS = 5.0
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


@contextlib.contextmanager
def naming_the_first(peers: Peers) -> Iterator[None]:
    """Inside, a process that JAX aborts because the first one is gone says so, and ends with an error.

    Args:
        peers: who meets.
    """
    if peers.process == 0:
        yield
        return

    def aborted(_: int) -> None:
        if _answers(peers.coordinator):
            return  # another reason: the abort goes on
        sys.stderr.write(first_is_gone(peers.process))
        sys.stderr.flush()
        os._exit(EXIT_CODE)

    handler = _Handler(aborted)  # kept alive by this frame as long as C may call it
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]
    before = set_handler(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    try:
        yield
    finally:
        set_handler(signal.SIGABRT, before)


def first_is_gone(process: int) -> str:
    """The line that one of the others leaves behind.

    Args:
        process: its number.
    """
    return (
        f"systolic: process 0 of this run is gone: it was killed, or its host or the network failed. Process {process} ends "
        "with it. Start the same command again; ckpt_path='last' goes on from the last save.\n"
    )


def _answers(coordinator: str) -> bool:
    host, _, port = coordinator.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
