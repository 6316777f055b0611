"""Ops that activation checkpointing computes once more: which of a graph's ops they are.

PyTorch runs a region's forward again during the backward pass. For XLA that is the same computation twice, which it does
once, keeping the result: nothing would be saved. So the ops of the second run are marked, and a pass holds them back.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from ...utilities._torch_internals import CheckpointFunction, _recomputation_hook, checkpoint
from .._capture_thread import replaced

_REGIONS: list[int] = []
_NUMBERS: list[Iterator[int]] = []


def current_region() -> int | None:
    """The number of the region whose forward runs once more; None where none does."""
    return _REGIONS[-1] if _REGIONS else None


@contextlib.contextmanager
def _running_again() -> Iterator[None]:
    _REGIONS.append(next(_NUMBERS[-1]))
    try:
        yield
    finally:
        _REGIONS.pop()


class _MarkedHook:
    """PyTorch's context of a recomputation with `use_reentrant=False`, in which ops are marked."""

    def __init__(self, *args: Any) -> None:
        self._stack = contextlib.ExitStack()
        self._hook = _recomputation_hook(*args)

    def __enter__(self) -> None:
        self._stack.enter_context(_running_again())
        self._stack.enter_context(self._hook)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, traceback)


def _marked_backward(ctx: Any, *gradients: Any) -> Any:
    """PyTorch's recomputation with `use_reentrant=True`, in which ops are marked."""
    ctx.run_function = _marked(ctx.run_function)
    return _backward(ctx, *gradients)


_backward: Callable[..., Any] = CheckpointFunction.backward


def _marked(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _running_again():
            return function(*args, **kwargs)

    return run


@contextlib.contextmanager
def marking_recomputations() -> Iterator[None]:
    """Inside the block, `current_region` knows what activation checkpointing does in the capturing thread."""
    _NUMBERS.append(itertools.count())
    try:
        with replaced(checkpoint, "_recomputation_hook", _MarkedHook):
            with replaced(CheckpointFunction, "backward", _marked_backward):
                yield
    finally:
        _NUMBERS.pop()
