"""Refuse Python and NumPy random numbers inside a step: they would be drawn once and frozen."""

from __future__ import annotations

import contextlib
import random
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..utilities._entries import Entry, see
from ._errors import HiddenRandomnessError, is_user_frame


@contextlib.contextmanager
def refusing_hidden_randomness(find_line: bool) -> Iterator[None]:
    """Raise when the block advances Python's or NumPy's global generator.

    Args:
        find_line: watch every line of user code to name the one that did. Slow: for the second try.
    """
    watch = _LineWatch()
    before = _states()
    outer = sys.gettrace()
    if find_line and outer is None:
        sys.settrace(watch.trace)
    try:
        yield
    finally:
        if find_line and outer is None:
            sys.settrace(None)
    if _states() != before:
        raise HiddenRandomnessError(
            "The step draws random numbers from Python's `random` or from `numpy.random`. The step is traced once, so "
            "the number would be frozen into the compiled program and be the same in every step.\n"
            f"  used at {watch.culprit or 'an unknown line (a debugger is tracing)'}\n"
            "Ways on: use torch.rand and friends, which draw new numbers in every step; draw the numbers in the "
            f"dataset or collate function; or run in eager PyTorch with Trainer(compile=False).{see(Entry.HIDDEN_RANDOMNESS)}"
        )


def _states() -> tuple[Any, ...]:
    name, keys, position, *gauss = np.random.get_state()
    return random.getstate(), position, bytes(np.asarray(keys)), tuple(gauss)


class _LineWatch:
    """Finds the line of user code after which a generator's position is another one."""

    def __init__(self) -> None:
        self.culprit: str | None = None
        self._position = self._where()
        self._line = ""

    @staticmethod
    def _where() -> tuple[Any, ...]:
        numpy_state: Any = np.random.get_state(legacy=False)
        return random.getstate()[1][-1], numpy_state["state"]["pos"], numpy_state["has_gauss"]

    def trace(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """A `sys.settrace` function that looks at lines of user code only."""
        return self._local if is_user_frame(frame.f_code.co_filename) else None

    def _local(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        position = self._where()
        if position != self._position and self.culprit is None:
            self.culprit = self._line
        self._position = position
        self._line = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
        return self._local
