"""Functions of libraries that know nothing of PyTorch: `f1_score(y.numpy(), guess.numpy())` is called after every step.

Such a function wants real memory, and while a step is traced there is none. The trace begins again with the function made one
of `systolic.host`, wherever the user's code finds it: by a global name, by a module's attribute, by an import in the step.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, FunctionType, ModuleType
from typing import Any

import torch

from ...utilities._installed import is_in_packages
from .._errors import is_user_frame
from .._users import is_the_users
from ._source_lines import expression_at, named_object

PUT_OFF = "_systolic_put_off"
"""Attribute of a function that is called after the step: the function itself."""

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
    # of functions only: other objects may raise whatever they like when they are asked for an attribute
    found = [one for one in _named(frame) if isinstance(one, FunctionType) and one.__code__ is inner.f_code]
    if len(found) > 1:  # functions of one decorator share its code
        inside = [value for value in inner.f_locals.values() if callable(value)]
        found = [one for one in found if any(getattr(one, "__wrapped__", None) is value for value in inside)]
    if len(found) == 1 and PUT_OFF not in getattr(found[0], "__dict__", {}):
        raise LibraryIsAskedError(LibraryCall(found[0], frame.f_globals))


def function_that_failed(error: Exception) -> LibraryCall | None:
    """The function of a library, or of Python's own, whose call by the user's code ended with an error.

    Also one that is written in C, or that reads values itself (`json.dumps`, `np.save`). None where the user's line did
    something else, and for functions of PyTorch's, but for `torch.save`.
    """
    trace, last = error.__traceback__, None
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        last = trace if is_user_frame(name) and not is_in_packages(name) else last
        trace = trace.tb_next
    node = None if last is None else expression_at(last.tb_frame.f_code, last.tb_lasti)
    if last is None or not isinstance(node, ast.Call):
        return None
    function = named_object(node.func, last.tb_frame)
    function = getattr(function, PUT_OFF, function)  # one that is put off already, which the step has imported by its name
    package = str(getattr(function, "__module__", None) or "builtins").partition(".")[0]
    of_values = function is torch.save or package not in ("torch", "systolic", "jax", "builtins", "__main__")
    if isinstance(function, type) or not callable(function) or not of_values or is_the_users(function.__module__):
        return None
    return LibraryCall(function, last.tb_frame.f_globals)


def fails_in_library(error: Exception) -> bool:
    """Whether code of a library that knows nothing of PyTorch ended with an error as arrays of a trace give it one."""
    if not isinstance(error, AttributeError | TypeError):
        return False
    trace, last = error.__traceback__, None
    while trace is not None:
        last = last if _package(trace.tb_frame) in _NO_LIBRARIES else trace.tb_frame
        trace = trace.tb_next
    return last is not None and is_in_packages(last.f_code.co_filename) and not _knows_torch(_package(last))


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


def modules_with(function: Callable[..., Any]) -> list[ModuleType]:
    """The modules of a function's package, and those that have it under its name: one written in C may tell of no package."""
    name = getattr(function, "__name__", "")
    others = [one for one in list(sys.modules.values()) if isinstance(one, ModuleType) and vars(one).get(name) is function]
    found = [*modules_of(str(function.__module__).partition(".")[0]), *others]
    return list({id(one): one for one in found}.values())


def _named(frame: FrameType) -> list[Any]:
    """Variables that a function's code sees, and attributes that it names of modules among them."""
    names = frame.f_code.co_names
    values = [*frame.f_globals.values(), *frame.f_locals.values()]
    for _ in range(3):  # sklearn.metrics.f1_score
        values += [vars(one)[n] for one in values if isinstance(one, ModuleType) for n in names if n in vars(one)]
    return list({id(value): value for value in values}.values())
