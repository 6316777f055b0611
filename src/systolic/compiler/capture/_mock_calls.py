"""Mocks that a step calls: their calls are counted after every step, with its values."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ...utilities._torch_internals import FUNCTIONAL_MODE, get_dispatch_mode
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
            stack.enter_context(replaced(owner, name, functools.partial(_note, getattr(owner, name))))
        yield


def _note(method: Callable[..., None], /, *args: Any, **kwargs: Any) -> None:
    if get_dispatch_mode(FUNCTIONAL_MODE) is None:  # below the step's own operations, whose values mean nothing to the host
        method(*args, **kwargs)
    else:
        recorded(method, *args, **kwargs)
