"""Errors of capture: what went wrong, on which line of the user's code, and what to do."""

from __future__ import annotations

import functools
import sys
import sysconfig
import traceback
from pathlib import Path

import torch

from ..utilities._installed import is_in_packages

_OURS = f"{Path(__file__).parents[1]}/"
_FRAMEWORK = (f"{Path(torch.__file__).parent}/", _OURS, "<")
_STANDARD_LIBRARY = f"{sysconfig.get_path('stdlib')}/"


class CaptureError(RuntimeError):
    """The step cannot become one XLA program as it is written."""


class UnsupportedOpError(CaptureError):
    """The step uses an op that has no lowering to XLA."""


class DataDependentError(CaptureError):
    """Python control flow depends on a value that only the device knows."""


class HiddenRandomnessError(CaptureError):
    """The step draws random numbers that would be frozen into the program."""


class RecompileLimitError(CaptureError):
    """The step needs a new program again and again."""


def is_ours(filename: str) -> bool:
    """Whether a source file is of this package."""
    return filename.startswith(_OURS)


@functools.cache  # a trace of seconds asks 100,000 times, of some hundred files
def is_user_frame(filename: str) -> bool:
    """Whether a source file is the user's or a package's: not PyTorch's, not Python's and not ours."""
    if filename.startswith(_STANDARD_LIBRARY):
        # packages lie below the standard library, unless there is a virtual environment
        return is_in_packages(filename) and not filename.startswith(_FRAMEWORK)
    return not filename.startswith(_FRAMEWORK)


def user_line_of(error: BaseException | None = None, *, in_packages: bool = True) -> str:
    """The innermost line of user code on an error's traceback, or on the current stack: `file:line in function: code`.

    Args:
        error: the error; None for the current stack.
        in_packages: whether a line of an installed package counts as one; if not, one is taken where there is no other.
    """
    if error is None:
        innermost = sys._getframe(1)
        while innermost.f_back is not None and not is_user_frame(innermost.f_code.co_filename):
            innermost = innermost.f_back
        frames = traceback.extract_stack(innermost, limit=1)  # without the sources of all the frames around it
    else:
        frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not in_packages and not is_in_packages(frame.filename)]
    for frame in [*reversed(own), *reversed(frames)]:
        if is_user_frame(frame.filename):
            return f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return "(no line of user code on the stack)"
