"""SIGTERM and Ctrl-C while training: a flag that is looked at between steps, so that what is saved is whole.

With several processes one that left alone would leave the others waiting for it in the next step: they agree, after every
batch of training, whether a signal came to any of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeVar

from ..distributed import agree
from ..exceptions import SIGTERMException

T = TypeVar("T")


@contextlib.contextmanager
def exits_on_ctrl_c() -> Iterator[None]:
    """Leave the script with exit code 1 after Ctrl-C, as Lightning does, when everything inside has ended."""
    try:
        yield
    except KeyboardInterrupt as pressed:
        raise SystemExit(1) from pressed


class Signals:
    """Requests of the operating system to a run.

    Args:
        grace_period: seconds that a run may take to end after SIGTERM.
        requeue_signal: asks for putting the job back into a cluster's queue; None where there is no such queue.

    Attributes:
        pending: the signal that came; None for none.
        waiting: whether the main thread waits for data, which may take for ever: then a signal ends the wait.
    """

    def __init__(self, grace_period: float, requeue_signal: signal.Signals | None = None) -> None:
        self._requeue_signal = requeue_signal
        self._requeue: Callable[[], None] | None = None
        self.pending: signal.Signals | None = None
        self.waiting = False
        self._grace_period = grace_period
        self._process = os.getpid()
        self._several = False
        self._users: Callable[[int, FrameType | None], object] | None = None
        self._terminated = threading.Event()
        self._ended = threading.Event()

    def __reduce__(self) -> tuple[type[Signals], tuple[float, signal.Signals | None]]:
        """A copy waits for signals of its own."""
        return Signals, (self._grace_period, self._requeue_signal)

    @contextlib.contextmanager
    def watched(self, several_processes: bool, requeue: Callable[[], None]) -> Iterator[None]:
        """Handle both signals inside: Ctrl-C where nobody else does; what handles SIGTERM already is called as well.

        Args:
            several_processes: nobody ends alone then; see `check_together`. The handler of JAX's service, which Python
                does not see, is replaced: a process that hangs could not be ended by SIGTERM with it.
            requeue: puts the job back into its queue; training goes on.
        """
        self._several, self._requeue = several_processes, requeue
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        ours: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
        if self._requeue_signal is not None:
            ours[self._requeue_signal] = signal.SIG_DFL
        replaced: dict[int, Any] = {number: before for number, before in ours.items() if signal.getsignal(number) == before}
        others = signal.getsignal(signal.SIGTERM)
        if callable(others):
            self._users = replaced[signal.SIGTERM] = others
        for number in replaced:
            signal.signal(number, self._handle)
        enforcing = threading.Thread(target=self._enforce, name="systolic-grace", daemon=True)
        if signal.SIGTERM in replaced:
            enforcing.start()
        try:
            yield
        finally:
            self._ended.set()
            self._terminated.set()  # nothing came: the thread that waits for it ends
            if signal.SIGTERM in replaced:
                enforcing.join()
            for number, before in replaced.items():
                signal.signal(number, before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child that was forked and did not ask for this
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        again = self.pending is signal.SIGINT and number == signal.SIGINT
        if self.pending is None or (self.pending is not signal.SIGTERM and number != self._requeue_signal):
            self.pending = signal.Signals(number)
        if number == signal.SIGTERM:
            self._terminated.set()
            if self._users is not None:
                self._users(number, frame)
        if again or (self.waiting and not self._several):
            self.check()

    def _enforce(self) -> None:
        """In a thread: a process that cannot end by itself in time is ended."""
        self._terminated.wait()
        if not self._ended.wait(self._grace_period):
            os._exit(128 + signal.SIGTERM)

    def check_alone(self) -> None:
        """Raise what a signal asks for, where this process is the only one; see `check`."""
        if not self._several:
            self.check()

    def check_together(self) -> None:
        """Raise in all processes what a signal to one of them asks for; all must call this after the same batch.

        Raises:
            SIGTERMException: SIGTERM came to one of them.
            KeyboardInterrupt: Ctrl-C was pressed at one of them.
        """
        if agree(self.pending is not None):
            order = (signal.SIGTERM, signal.SIGINT, self._requeue_signal)
            self.pending = next(number for number in order if agree(self.pending is number))
            self.check()

    def check(self) -> None:
        """Do what a signal asks for.

        Raises:
            SIGTERMException: SIGTERM came.
            KeyboardInterrupt: Ctrl-C was pressed.
        """
        if self.pending is signal.SIGTERM:
            raise SIGTERMException
        if self.pending is signal.SIGINT:
            raise KeyboardInterrupt
        if self.pending is not None:
            self.pending = None
            assert self._requeue is not None, "it was watched"
            self._requeue()

    def interruptible(self, batches: Iterator[T]) -> Iterator[T]:
        """Batches whose arrival may be waited for without being deaf to signals."""
        try:
            while True:
                try:
                    self.waiting = True  # first: a signal from now on ends the wait, an earlier one does here
                    if self.pending is not None:
                        self.check_alone()
                    batch = next(batches)
                except StopIteration:
                    return
                except Exception as error:  # SIGTERM that went to the workers of a loader, too
                    if self.pending is signal.SIGTERM and not self._several:
                        raise SIGTERMException from error
                    raise
                finally:
                    self.waiting = False
                yield batch
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
