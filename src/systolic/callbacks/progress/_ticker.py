"""Calling a function regularly while the main thread is busy."""

import threading
from collections.abc import Callable


class Ticker:
    """A thread that calls `tick` every `interval` seconds, until it is stopped."""

    def __init__(self, interval: float, tick: Callable[[], None]) -> None:
        self._interval = interval
        self._tick = tick
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="systolic-progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it: after this, nothing is drawn any more."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval):
            self._tick()
