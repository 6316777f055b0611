"""Tell errors that a symbolic number can have caused from errors of the user's own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FrameType

import torch

from .._errors import CaptureError, is_user_frame
from ._object_graph import Path


def may_come_from_symbols(error: Exception, variable: Collection[Path]) -> bool:
    """Whether an error can be there because numbers were symbolic that are plain ones in eager PyTorch.

    Such an error is no reason to stop: the step is captured again with these numbers frozen. Any other one is the user's,
    and a second try would only run the step's side effects again. A number can cause an error where it is looked at:
    in the innermost function that is not PyTorch's own, or in what that calls.

    Args:
        error: what the capture raised.
        variable: paths of the numbers that were symbolic.
    """
    if isinstance(error, CaptureError) or "Sym" in str(error):
        return True
    names = {path[-1] for path in variable}
    return any(_looks_at(frame, names) for frame in _innermost(error))


def wants_plain_numbers(error: Exception) -> bool:
    """Whether something that the step calls takes numbers of Python's only: it names the class of ours, or was given one."""
    kinds = torch.SymInt, torch.SymFloat
    if type(error) is RuntimeError:  # as `generator.manual_seed(batch_idx)` raises
        return any(kind.__name__ in str(error) for kind in kinds)
    if not isinstance(error, TypeError | ValueError | AttributeError):
        return False
    *library, _ = _innermost(error)
    given = [value for frame in library for value in frame.f_locals.values()]
    return any(kind.__name__ in str(error) for kind in kinds) or any(isinstance(value, kinds) for value in given)


def _innermost(error: Exception) -> Iterator[FrameType]:
    frames: list[FrameType] = []
    trace = error.__traceback__
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames):
        yield frame
        if is_user_frame(frame.f_code.co_filename):
            return


def _looks_at(frame: FrameType, names: Collection[object]) -> bool:
    """Whether a function mentions one of the numbers, or was given a floating one.

    Integers that a function was given say nothing: the batch's number is symbolic in every try.
    """
    code = frame.f_code
    mentioned = {*code.co_names, *code.co_varnames, *(c for c in code.co_consts if isinstance(c, str | int))}
    return not mentioned.isdisjoint(names) or any(isinstance(value, torch.SymFloat) for value in frame.f_locals.values())
