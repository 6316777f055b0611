"""The arguments with which an object's `__init__` was called, read from the stack."""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import Any


def calling_frame() -> types.FrameType:
    """The frame of whoever called the function that asks."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    assert frame.f_back.f_back is not None
    return frame.f_back.f_back


def init_arguments(owner: object, frame: types.FrameType, kind: type) -> dict[str, Any]:
    """The arguments of every `__init__` of `owner` on the stack, the outermost (most derived) last.

    As in Lightning those of any module whose `__init__` is running count: the hyperparameters of a module that another one
    builds hold the other one's arguments, too, in the place of its own where names are equal.

    Args:
        owner: the object that is being built; of a dataclass the fields count.
        frame: where to begin: the frame of `__init__`, or of a method that it calls.
        kind: the class of objects that have hyperparameters.
    """
    if dataclasses.is_dataclass(owner):
        return {field.name: getattr(owner, field.name) for field in dataclasses.fields(owner) if field.init}
    found: dict[str, Any] = {}
    current: types.FrameType | None = frame
    while current is not None and _initialized(current) is not owner:
        current = current.f_back
    while current is not None and isinstance(_initialized(current), kind):
        found.update(_arguments(current))
        current = current.f_back
    return found


def _initialized(frame: types.FrameType) -> object:
    """The object whose `__init__` a frame is of, or None."""
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_name == "__init__" and code.co_argcount > 0 else None


def _arguments(frame: types.FrameType) -> dict[str, Any]:
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    found = {name: values[name] for name in names if name in values}
    keywords = inspect.getargvalues(frame).keywords
    return found | values[keywords] if keywords else found
