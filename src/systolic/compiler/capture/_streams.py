"""`sys.stdout.write(text)` and `sys.stderr.write(text)` in a step: written after every step, as `print` is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from .._errors import is_user_frame
from ._effects import StandIn
from ._host_calls import has_marks, recording

_NAMES = ("stdout", "stderr")


class _Stream(StandIn):
    """One of them while a step is traced; what PyTorch and other threads write is written at once."""

    def write(self, text: str) -> int:
        """Write a text, of the user's after the step."""
        calls = recording()
        if calls is None or not (has_marks(text) or is_user_frame(sys._getframe(1).f_code.co_filename)):
            return self.original.write(text)
        calls.record(self.original.write, (text,), {})
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.original, name)


@contextlib.contextmanager
def streams_after_the_step() -> Iterator[None]:
    """Inside the block, user code writes to the standard streams after the step that is traced."""
    before = [(name, getattr(sys, name)) for name in _NAMES]
    for name, stream in before:
        setattr(sys, name, _Stream(stream))
    try:
        yield
    finally:
        for name, stream in before:
            if isinstance(getattr(sys, name), _Stream):  # else user code has redirected it for longer than the step
                setattr(sys, name, stream)
