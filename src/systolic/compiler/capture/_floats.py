"""`float(x.max())` in a step: a number of the program, in modules that ask for one.

Python's `float` gives a real number or an error, which no method of a tensor can change. A trace that fails on it is made
again, and in the module that asked, the name `float` then means a kind of it that leaves numbers of the trace as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor, free_unbacked_symbols
from .._capture_thread import is_capture_thread, replaced
from .._errors import is_user_frame
from ._traced_arrays import is_traced_array

Scope = dict[str, Any]


class FloatIsAskedError(Exception):
    """A module asks for the number that a traced value is.

    Attributes:
        scope: the module's variables.
    """

    def __init__(self, scope: Scope) -> None:
        super().__init__("float() of a value that is being traced")
        self.scope = scope


class _Kind(type):
    """Class of `_Float`: in all but calls with values of a trace it is Python's `float`."""

    def __call__(cls, *args: Any) -> Any:
        value: Any = args[0] if args else None
        if is_traced_array(value):
            value = value.tensor
        if isinstance(value, FunctionalTensor):
            value = value.item()
        numbers = torch.SymFloat | torch.SymInt
        return torch.sym_float(value) if isinstance(value, numbers) and is_capture_thread() else float(*args)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, float)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, float)


class _Float(float, metaclass=_Kind):
    """Python's `float`, for modules that give it values of a trace."""


@contextlib.contextmanager
def traced_floats(scopes: Sequence[Scope]) -> Iterator[None]:
    """Inside the block, `float` takes values of a trace in these modules, and is an error that names the module in others."""
    for scope in scopes:
        scope["float"] = _Float
    try:
        with replaced(torch.Tensor, "__float__", _of_tensor), replaced(torch.SymFloat, "__float__", _of_number):
            yield
    finally:
        for scope in scopes:
            del scope["float"]


_tensors_float: Any = torch.Tensor.__float__
_numbers_float: Any = torch.SymFloat.__float__


def _of_tensor(tensor: torch.Tensor) -> float:
    if isinstance(tensor, FunctionalTensor) and tensor.is_floating_point() and tensor.numel() == 1:
        _require_no_asker()
    return _tensors_float(tensor)


def _of_number(number: torch.SymFloat) -> float:
    if free_unbacked_symbols(number):
        _require_no_asker()
    return _numbers_float(number)


def _require_no_asker() -> None:
    """Raise where the user's code that is running says `float`, and means Python's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_user_frame(frame.f_code.co_filename):
        frame = frame.f_back
    if "float" in frame.f_code.co_names and "float" not in frame.f_globals:
        raise FloatIsAskedError(frame.f_globals)
