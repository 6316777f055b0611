"""Clocks that a step reads: traced, it would see the instant of its capture for ever, which is said."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ...utilities._installed import is_in_packages
from .._capture_thread import replaced
from .._errors import is_user_frame

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time")
_told: set[tuple[str, int]] = set()


@contextlib.contextmanager
def clocks_told() -> Iterator[None]:
    """Inside the block, the user's lines that read a clock are warned of, once for each line.

    Not seen are clocks that were imported by their own name (`from time import time`) and `datetime.now`.
    """
    with contextlib.ExitStack() as stack:
        for name in _CLOCKS:
            stack.enter_context(replaced(time, name, _telling(name)))
        yield


def _telling(name: str) -> Callable[[], Any]:
    original = getattr(time, name)

    @functools.wraps(original)
    def read() -> Any:
        frame = sys._getframe(2)  # beyond the function that chooses by the thread
        file, line = frame.f_code.co_filename, frame.f_lineno
        if is_user_frame(file) and not is_in_packages(file) and (file, line) not in _told:
            _told.add((file, line))
            warnings.warn(
                f"{file}:{line}: time.{name}() in a compiled step is read when the step is traced, and is a constant in every "
                "step after that. Steps run on the devices later than this line: to time them, use "
                'Trainer(profiler="xla"), ThroughputMonitor, or the hooks on_train_batch_start and on_train_batch_end.',
                stacklevel=3,
            )
        return original()

    return read
