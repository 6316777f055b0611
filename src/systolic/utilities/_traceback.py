"""Shorten tracebacks to what the user wrote and called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import torch

FULL = "SYSTOLIC_FULL_TRACEBACK"
"""The environment variable with which every frame is shown."""

_OURS = f"{Path(__file__).parents[1]}/"
_TORCH = f"{Path(torch.__file__).parent}/"
# The rest of PyTorch (layers, optimizers, functions) is what the user calls. These are its tracer, between our call of the
# user's code and that code: no line of them says anything about an error there.
_TRACER = (
    *(f"{_TORCH}{folder}/" for folder in ("fx", "_subclasses", "_functorch", "_library", "_dynamo", "_higher_order_ops")),
    *(f"{_TORCH}{folder}/" for folder in ("_decomp", "_prims_common")),
    *(f"{_TORCH}{file}.py" for file in ("_ops", "_compile", "overrides")),
    *(f"{_TORCH}utils/{file}.py" for file in ("_python_dispatch", "_pytree", "_stats")),
)
_HIDDEN = (_OURS, *_TRACER, "<frozen ", "<string>")


class ShortTracebacks:
    """A context manager for the function that the user calls: errors leave it with the user's frames, and its own.

    Frames of ours and of PyTorch's tracer are taken out, from the errors that an error comes from, too. A mistake of our
    own keeps them all.
    """

    def __enter__(self) -> None:
        pass

    # not by contextlib: its context managers put the whole traceback back
    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None or os.environ.get(FULL, "") not in ("", "0") or _is_our_mistake(error):
            return
        for one in _chain(error):
            one.__traceback__ = _without_hidden(one.__traceback__, keep_first=one is error)


def _is_our_mistake(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    is_ours = trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS)
    return is_ours and isinstance(error, AssertionError | LookupError | AttributeError | NameError)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            yield one
            waiting += [one.__cause__, one.__context__]


def _without_hidden(trace: TracebackType | None, keep_first: bool) -> TracebackType | None:
    kept: list[TracebackType] = []
    while trace is not None:
        if keep_first or not trace.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            kept.append(trace)
        keep_first = False
        trace = trace.tb_next
    result: TracebackType | None = None
    for one in reversed(kept):
        result = TracebackType(result, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return result
