"""The first process dies, and JAX aborts the others in a thread of C++, with a stack of it; these words name who died.

`FailureWatch` is faster than JAX's client from its first look on, and this is for the moments before. Python's own handlers of
signals run between two of Python's instructions, too late for an abort, so this one is a function of C, through ctypes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys

from ._peers import Peers

EXIT_CODE = 1
_CONNECT_SECONDS = 5.0
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int)


def name_the_first(peers: Peers) -> None:
    """From now on a process that is aborted because the first one is gone says so, and ends with an error.

    Args:
        peers: who meets.
    """
    if peers.process == 0:
        return
    set_handler = ctypes.CDLL(None).signal
    set_handler.restype, set_handler.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]

    def aborted(number: int) -> None:
        if not _answers(peers):
            sys.stderr.write(first_is_gone(peers.process))
            sys.stderr.flush()
            os._exit(EXIT_CODE)
        set_handler(number, before)  # another reason: as if this one had not been here
        signal.raise_signal(number)

    handler = _Handler(aborted)
    before = set_handler(signal.SIGABRT, ctypes.cast(handler, ctypes.c_void_p))
    # While Python ends a thread of C that calls it would wait for ever. This also keeps `handler` alive until then.
    atexit.register(lambda: handler and set_handler(signal.SIGABRT, before))


def first_is_gone(process: int) -> str:
    """The line that one of the others leaves behind.

    Args:
        process: its number.
    """
    return (
        f"systolic: process 0 of this run is gone: it was killed, or its host or the network failed. Process {process} ends "
        "with it. Start the same command again; ckpt_path='last' goes on from the last save.\n"
    )


def _answers(peers: Peers) -> bool:
    try:
        socket.create_connection((peers.host, peers.port), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
