"""Ctrl-C and SIGTERM, noted for whoever waits for other processes."""

from __future__ import annotations

import contextlib
import signal
from collections import deque
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def noted_signals(noted: deque[signal.Signals]) -> Iterator[None]:
    """Inside the block Ctrl-C and SIGTERM do nothing but stand in `noted`, in the order in which they came."""

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(signal.Signals(number))

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
