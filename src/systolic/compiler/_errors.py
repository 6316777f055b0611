"""Errors of capture: what went wrong, on which line of the user's code, and what to do."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import torch

_FRAMEWORK = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")


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


def is_user_frame(filename: str) -> bool:
    """Whether a source file is the user's, not PyTorch's and not ours."""
    return not filename.startswith(_FRAMEWORK)


def user_line_of(error: BaseException | None = None) -> str:
    """The innermost line of user code on an error's traceback, or on the current stack: `file:line in function: code`."""
    if error is None:
        frames = traceback.extract_stack(sys._getframe(1))
    else:
        frames = traceback.extract_tb(error.__traceback__)
    for frame in reversed(frames):
        if is_user_frame(frame.filename):
            return f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
    return "(no line of user code on the stack)"
