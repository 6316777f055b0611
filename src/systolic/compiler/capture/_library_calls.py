"""Functions of libraries that know nothing of PyTorch: `f1_score(y.numpy(), guess.numpy())` is called after every step.

Such a function wants real memory, and while a step is traced there is none. The trace begins again with the function made one
of `systolic.host`, wherever the user's code finds it: by a global name, by a module's attribute, by an import in the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any

import torch

from ...utilities._installed import is_in_packages
from .._errors import is_user_frame

_NO_LIBRARIES = ("numpy", "torch", "systolic", "jax")


@dataclass(frozen=True, eq=False)
class LibraryCall:
    """A function of a library, and where user code finds it.

    Attributes:
        function: the function.
        scope: global names of the module that called it.
    """

    function: Callable[..., Any]
    scope: dict[str, Any]


class LibraryIsAskedError(Exception):
    """A function of a library wants the memory of an array: the trace must begin again with the call put off."""

    def __init__(self, call: LibraryCall) -> None:
        super().__init__()
        self.call = call


def require_no_library() -> None:
    """Raise where a function of a library asks for memory that can be called after the step as well.

    Raises:
        LibraryIsAskedError: which one.
    """
    frame, inner = _caller_of_library(sys._getframe(1))
    if frame is None or inner is None:
        return
    found = [one for one in _named(frame) if getattr(one, "__code__", None) is inner.f_code]
    if len(found) > 1:  # functions of one decorator share its code
        inside = [value for value in inner.f_locals.values() if callable(value)]
        found = [one for one in found if any(getattr(one, "__wrapped__", None) is value for value in inside)]
    if len(found) == 1:
        raise LibraryIsAskedError(LibraryCall(found[0], frame.f_globals))


def _caller_of_library(frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """The innermost frame that called into a library, and the library's frame; None where another one wants the memory."""
    while frame is not None and (_package(frame) in _NO_LIBRARIES or not is_user_frame(frame.f_code.co_filename)):
        frame = frame.f_back
    if frame is None or not is_in_packages(frame.f_code.co_filename) or _knows_torch(_package(frame)):
        return None, None
    library, inner = _package(frame), frame
    while frame is not None and _package(frame) == library:
        inner, frame = frame, frame.f_back
    # called by PyTorch or by us it is the step itself
    return (frame, inner) if frame is not None and is_user_frame(frame.f_code.co_filename) else (None, None)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _knows_torch(package: str) -> bool:
    """Whether a library computes with PyTorch: then its functions are part of the step."""
    return any(vars(module).get("torch") is torch for module in modules_of(package))


def modules_of(package: str) -> list[ModuleType]:
    """The modules of a package that are loaded."""
    return [one for name, one in list(sys.modules.items()) if name.partition(".")[0] == package and isinstance(one, ModuleType)]


def _named(frame: FrameType) -> list[Any]:
    """Variables that a function's code sees, and attributes that it names of modules among them."""
    names = frame.f_code.co_names
    values = [*frame.f_globals.values(), *frame.f_locals.values()]
    for _ in range(3):  # sklearn.metrics.f1_score
        values += [vars(one)[n] for one in values if isinstance(one, ModuleType) for n in names if n in vars(one)]
    return list({id(value): value for value in values}.values())
