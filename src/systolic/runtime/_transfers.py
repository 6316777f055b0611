"""Who is told when values move between host and devices. While nobody listens, a transfer pays one look at an empty list."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Protocol


class TransferObserver(Protocol):
    """Is told of transfers, in the thread that made them."""

    def sent(self, size: int, began: float, ended: float) -> None:
        """`size` bytes were handed to the devices; times are `time.perf_counter()`. The copy itself may still run."""
        ...

    def fetched(self, size: int, began: float, ended: float) -> None:
        """`size` bytes came to the host; the time includes waiting until the devices had them."""
        ...


observers: list[TransferObserver] = []


@contextlib.contextmanager
def observing(observer: TransferObserver) -> Iterator[None]:
    """Tell `observer` of all transfers inside the block."""
    observers.append(observer)
    try:
        yield
    finally:
        observers.remove(observer)


def tell_sent(size: int, began: float) -> None:
    """A transfer to the devices has just ended."""
    ended = time.perf_counter()
    for observer in list(observers):
        observer.sent(size, began, ended)


def tell_fetched(size: int, began: float) -> None:
    """A transfer to the host has just ended."""
    ended = time.perf_counter()
    for observer in list(observers):
        observer.fetched(size, began, ended)
