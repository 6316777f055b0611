"""Bring batches to the devices ahead of the step, in the background (F13)."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")
_PATIENCE_S = 1.0


class _End:
    """Marks the end of the data, with the error that caused it, if one did."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class Prefetcher(Generic[T, U]):
    """Iterate over `prepare(item)` for the items of `source`, computed by a thread that runs ahead.

    Args:
        source: what to iterate over; only the thread touches it.
        prepare: what to do with each item (flatten, copy to the devices).
        depth: how many prepared items may wait.
    """

    def __init__(self, source: Iterable[T], prepare: Callable[[T], U], depth: int = 2) -> None:
        self._ready: queue.SimpleQueue[U | _End] = queue.SimpleQueue()
        self._room = threading.Semaphore(depth)
        self._stopped = False
        self._thread = threading.Thread(target=self._work, args=(source, prepare), name="systolic-prefetch", daemon=True)

    def __iter__(self) -> Iterator[U]:
        self._thread.start()
        try:
            while True:
                item = self._ready.get()
                self._room.release()
                if isinstance(item, _End):
                    if item.error is not None:
                        raise item.error
                    return
                yield item
        finally:
            self.close()

    def close(self) -> None:
        """Stop the thread; needed when the iteration ends early. Waits for the item in work, but not for ever.

        A source that blocks keeps its thread, which ends with the process.
        """
        self._stopped = True
        self._room.release()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_PATIENCE_S)

    def _work(self, source: Iterable[T], prepare: Callable[[T], U]) -> None:
        error: BaseException | None = None
        try:
            for item in source:
                prepared = prepare(item)
                self._room.acquire()
                if self._stopped:
                    return
                self._ready.put(prepared)
        except BaseException as caught:  # re-raised in the thread that iterates
            error = caught
        finally:
            self._ready.put(_End(error))
