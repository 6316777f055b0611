"""Iterators and queues that were there before the step: what they give next belongs to one step, and a trace would keep it."""

from __future__ import annotations

import builtins
import contextlib
import queue
import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .._capture_thread import replaced
from .._errors import CaptureError, is_user_frame, user_line_of


@contextlib.contextmanager
def refusing_iterators(existed: Callable[[object], bool]) -> Iterator[None]:
    """Inside the block, user code may take the next element only of iterators that the step itself makes.

    Args:
        existed: whether an object was there before the step.
    """
    original = builtins.next

    def following(iterator: Any, *default: Any) -> Any:
        if is_user_frame(sys._getframe(2).f_code.co_filename) and hasattr(iterator, "__next__") and existed(iterator):
            _refuse(f"takes the next element of {_named(iterator)}")
        return original(iterator, *default)

    def get(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        del self, args, kwargs
        _refuse("takes an element out of a queue")

    with replaced(builtins, "next", following), replaced(queue.Queue, "get", get):
        yield


def _named(iterator: object) -> str:
    return f"an iterator that was there before ({type(iterator).__name__})"


def _refuse(does: str) -> NoReturn:
    raise CaptureError(
        f"The step {does}, which is another one for every step. The step is traced once, and would keep the element of the "
        f"trace.\n  used at {user_line_of()}\n"
        "Options: take it in a hook that runs between the steps, on_train_batch_start: self.extra = next(self.extra_batches), "
        "and use self.extra in the step; or give Trainer.fit several loaders, {'labelled': ..., 'unlabelled': ...}: each batch "
        "then has one of each."
    )
