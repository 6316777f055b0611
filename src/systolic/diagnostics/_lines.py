"""Line that made something happen: the user's, or the part of systolic that did it by itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from ..utilities._installed import is_installed

_PACKAGE = str(Path(__file__).parents[1]) + "/"
_BELOW = ("runtime/", "compiler/", "diagnostics/", "trainer/_observed.py")
_TRAINER = "trainer/_trainer.py"


def responsible_line() -> str:
    """Origin of the current call.

    Returns:
        `file:line in function` of the innermost line of user code; for what the Trainer does on its own account
        `systolic/<file> in <function>`.
    """
    frame: FrameType | None = sys._getframe(1)
    own = ""
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE):
            inside = code.co_filename.removeprefix(_PACKAGE)
            if not own and not inside.startswith(_BELOW):
                own = f"systolic/{inside} in {code.co_qualname}"
            if inside == _TRAINER:
                return own
        elif not (code.co_filename.startswith("<") or is_installed(code.co_filename)):  # generated code is in "<string>"
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
        frame = frame.f_back
    return own or "(no line of user code on the stack)"
