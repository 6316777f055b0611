"""A logger that does not come back: the run ends with an error that names it, instead of waiting for ever."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ..exceptions import LoggerBlockedError, MisconfigurationException

_VARIABLE = "SYSTOLIC_LOGGER_TIMEOUT"
_DEFAULT_SECONDS = 300.0


def logger_timeout() -> float:
    """Seconds that a row may take a logger, 0 for any number; 300 where SYSTOLIC_LOGGER_TIMEOUT does not say otherwise.

    Raises:
        MisconfigurationException: the variable holds something else than a number of seconds.
    """
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else _DEFAULT_SECONDS
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise MisconfigurationException(
            f"Invalid value of the environment variable {_VARIABLE}. Expected the seconds that a logger may take for a row, 0 "
            f"for any number. Received: {text!r}."
        )
    return seconds


@contextlib.contextmanager
def limited(logger: object, seconds: float) -> Iterator[None]:
    """Inside, a logger is given so much time, by a signal that interrupts what it waits for.

    An alarm that the user has set, or handles, stays in place; there, and outside of the main thread, which alone gets signals,
    nothing limits the logger. The alarm repeats: a library may take the error for one of its connection's, and try again.

    Args:
        logger: what is called inside.
        seconds: how long it may take; 0 for ever.

    Raises:
        LoggerBlockedError: the time is over.
    """

    def alarm(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise LoggerBlockedError(
            f"{type(logger).__name__} has not taken a row of metrics within {seconds:g} seconds, and training waits for it. Is "
            "its server or file system there? Without it: Trainer(logger=False). To wait longer: the environment variable "
            f"{_VARIABLE}, in seconds, 0 for ever."
        )

    free = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    with _named(logger):
        if not seconds or not free or signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0):
            yield
            return
        signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


@contextlib.contextmanager
def _named(logger: object) -> Iterator[None]:
    """Inside, errors of the operating system get a note that says which logger met with them."""
    try:
        yield
    except OSError as error:
        error.add_note(f"{type(logger).__name__} was given a row of metrics when this happened.")
        raise
