"""Mocks that a step calls: their calls are counted after every step, with its values."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator

from .._capture_thread import replaced
from ._host_calls import recorded


@contextlib.contextmanager
def counting_mocks() -> Iterator[None]:
    """Inside the block, a mock of `unittest.mock` answers as ever, and notes that it was called after the step that is traced.

    Answers belong to the step (a mock may stand for a function of tensors); only the notes are for the host, where a test
    looks at `call_count` once the step is over.
    """
    mocks = sys.modules.get("unittest.mock")
    if mocks is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        for owner, name in ((mocks.CallableMixin, "_increment_mock_call"), (mocks.NonCallableMock, "reset_mock")):
            stack.enter_context(replaced(owner, name, functools.partial(recorded, getattr(owner, name))))
        yield
