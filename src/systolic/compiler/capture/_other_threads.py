"""Queues and events by which a step speaks with other threads, and threads that work for it with its own tensors."""

from __future__ import annotations

import contextlib
import multiprocessing.queues
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ...utilities._torch_internals import FunctionalTensor, tree_leaves
from .._capture_thread import replaced
from .._errors import is_user_frame
from ._host_calls import recorded
from ._watched_objects import require_watched

_AFTER_THE_STEP = (
    (queue.Queue, "put"), (queue.Queue, "put_nowait"), (multiprocessing.queues.Queue, "put"),
    (multiprocessing.queues.Queue, "put_nowait"), (threading.Event, "set"), (threading.Event, "clear"),
)  # fmt: skip


@contextlib.contextmanager
def telling_other_threads() -> Iterator[None]:
    """Inside the block, user code that puts something into a queue or sets an event does so after the step that is traced.

    Whether an event is set is a setting like any other: there is a program for each answer. A thread that gets tensors of the
    step (of a moving average) does its work when it is started, as a part of the step: no other thread is in the trace.
    """
    is_set, start = threading.Event.is_set, threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        if is_user_frame(sys._getframe(2).f_code.co_filename) and _has_tensors_of_the_step(thread):
            thread.run()
            thread.run = _nothing
        start(thread)

    def looking(event: threading.Event) -> bool:
        if is_user_frame(sys._getframe(2).f_code.co_filename):
            require_watched("Event", event, ("_flag",))
        return is_set(event)

    with contextlib.ExitStack() as stack:
        for owner, name in _AFTER_THE_STEP:
            stack.enter_context(replaced(owner, name, _later(getattr(owner, name))))
        stack.enter_context(replaced(threading.Event, "is_set", looking))
        stack.enter_context(replaced(threading.Thread, "start", starting))
        yield


def _has_tensors_of_the_step(thread: threading.Thread) -> bool:
    return any(isinstance(leaf, FunctionalTensor) for leaf in tree_leaves(list(vars(thread).values())))


def _nothing() -> None:
    return None


def _later(original: Callable[..., Any]) -> Callable[..., Any]:
    def put(*args: Any, **kwargs: Any) -> Any:
        if not is_user_frame(sys._getframe(2).f_code.co_filename):
            return original(*args, **kwargs)
        return recorded(original, *args, **kwargs)

    return put
