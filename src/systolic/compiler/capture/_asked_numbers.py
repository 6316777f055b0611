"""`float(x.max())` and `int(pointer)` in a step: numbers of the program, in modules that ask for them.

Python's `float` gives a real number or an error, and its `int` a whole number, which no method of a tensor can change. A trace
that meets one is made again, and in the module that asked, the name then means a kind of it that leaves numbers of the trace as
they are. Without that `float` would be an error, and each value of `int` would have a program of its own.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor, free_unbacked_symbols
from .._capture_thread import is_capture_thread, replaced
from .._errors import is_user_frame
from ._host_calls import number_for_text
from ._numpy_numbers import is_numpy_symbol, without_kind
from ._speculation import known_number
from ._traced_arrays import is_traced_array


@dataclass(frozen=True, eq=False)
class Asker:
    """A module that asks for numbers of the trace.

    Attributes:
        scope: its variables.
        name: what it says to ask: "float" or "int".
    """

    scope: dict[str, Any]
    name: str


class NumberIsAskedError(Exception):
    """A module asks for the number that a traced value is."""

    def __init__(self, asker: Asker) -> None:
        super().__init__(f"{asker.name}() of a value that is being traced")
        self.asker = asker


class _FloatKind(type):
    """Class of `_Float`: in all but calls with values of a trace it is Python's `float`."""

    def __call__(cls, *args: Any) -> Any:
        value: Any = args[0] if args else None
        if is_traced_array(value):
            value = value.tensor
        if isinstance(value, FunctionalTensor):
            value = value.item()
        value, numbers = without_kind(value), torch.SymFloat | torch.SymInt
        return torch.sym_float(value) if isinstance(value, numbers) and is_capture_thread() else float(*args)

    def __instancecheck__(cls, instance: object) -> bool:
        return _is_instance(instance, float, torch.SymFloat)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, float)


class _Float(float, metaclass=_FloatKind):
    """Python's `float`, for modules that give it values of a trace."""


class _IntKind(type):
    """Class of `_Int`: in all but calls with whole numbers of a trace it is Python's `int`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        value: Any = args[0] if len(args) == 1 and not kwargs else None
        if is_traced_array(value):
            value = value.tensor
        if _is_whole(value) and is_capture_thread():
            value = value.item()
        value = without_kind(value)
        if isinstance(value, torch.SymFloat) and is_capture_thread():
            value = math.trunc(value)
        if isinstance(value, torch.SymInt) and free_unbacked_symbols(value) and is_capture_thread():
            known = known_number(value)
            return value if known is None else known
        return value if isinstance(value, torch.SymInt) and is_capture_thread() else int(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return _is_instance(instance, int, torch.SymInt)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, int)


class _Int(int, metaclass=_IntKind):
    """Python's `int`, for modules that give it values of a trace."""


def _is_instance(value: object, plain: type, symbolic: type) -> bool:
    if is_numpy_symbol(value):
        return issubclass(value.kind, plain)
    return isinstance(value, plain | symbolic)


_KINDS = {"float": _Float, "int": _Int}


@contextlib.contextmanager
def traced_numbers(askers: Sequence[Asker], plain_ints: bool) -> Iterator[None]:
    """Inside the block, `float` and `int` take values of the trace in modules that ask; in others they name the module.

    Args:
        askers: the modules.
        plain_ints: whether `int` gives a plain number, that of this batch, to all of them.
    """
    global _plain_ints
    before, _plain_ints = _plain_ints, plain_ints
    for asker in askers:
        asker.scope[asker.name] = _KINDS[asker.name]
    try:
        with (
            replaced(torch.Tensor, "__float__", _of_tensor),
            replaced(torch.SymFloat, "__float__", _of_number),
            _float_of_whole_numbers(),
            # PyTorch takes a double from a floating tensor, of which it makes no symbol
            replaced(torch.Tensor, "__int__", _whole_of_tensor),
            replaced(torch.SymInt, "__int__", _whole_of_number),
            replaced(torch.SymFloat, "__int__", _whole_of_real),
        ):
            yield
    finally:
        _plain_ints = before
        for asker in askers:
            del asker.scope[asker.name]


_plain_ints = False
_tensors_float: Any = torch.Tensor.__float__
_numbers_float: Any = torch.SymFloat.__float__
_numbers_int: Any = torch.SymInt.__int__
_reals_int: Any = torch.SymFloat.__int__


def _of_tensor(tensor: torch.Tensor) -> float:
    if isinstance(tensor, FunctionalTensor) and tensor.numel() == 1:
        if (digits := number_for_text(tensor, float)) is not None:
            return digits
        if tensor.is_floating_point():
            _require_no_asker("float")
    return _tensors_float(tensor)


def _of_number(number: torch.SymFloat) -> float:
    if (digits := number_for_text(number, float)) is not None:
        return digits
    _require_no_asker("float")
    return _numbers_float(number)


@contextlib.contextmanager
def _float_of_whole_numbers() -> Iterator[None]:
    """Inside the block, `float` asks a symbolic whole number for its method; without one Python takes it for an index."""

    def method(number: torch.SymInt) -> float:
        if is_capture_thread():
            if (digits := number_for_text(number, float)) is not None:
                return digits
            _require_no_asker("float")
        return float(_numbers_int(number))

    kind: Any = torch.SymInt
    kind.__float__ = method
    try:
        yield
    finally:
        del kind.__float__


def _whole_of_tensor(tensor: torch.Tensor) -> int:
    if isinstance(tensor, FunctionalTensor) and tensor.numel() == 1:
        digits = number_for_text(tensor, int)
        if digits is not None:
            return int(digits)
    number = tensor.item()
    if _is_whole(tensor) and isinstance(number, torch.SymInt) and known_number(number) is None:
        _require_no_asker("int")
    return int(number)


def _whole_of_number(number: torch.SymInt) -> int:
    if (digits := number_for_text(number, int)) is not None:
        return int(digits)
    if is_user_frame(sys._getframe(2).f_code.co_filename) and free_unbacked_symbols(number) and known_number(number) is None:
        _require_no_asker("int")
    return _numbers_int(number)


def _whole_of_real(number: torch.SymFloat) -> int:
    if (digits := number_for_text(number, int)) is not None:
        return int(digits)
    if is_user_frame(sys._getframe(2).f_code.co_filename):
        _require_no_asker("int")
    return _reals_int(number)


def _is_whole(value: Any) -> bool:
    """Whether a value is a traced tensor of one whole number."""
    if not isinstance(value, FunctionalTensor) or value.numel() != 1:
        return False
    return not value.is_floating_point() and not value.is_complex() and value.dtype is not torch.bool


def _require_no_asker(name: str) -> None:
    """Raise where the user's code that is running says `float` or `int`, and means Python's."""
    frame = sys._getframe(1)
    while frame.f_back is not None and not is_user_frame(frame.f_code.co_filename):
        frame = frame.f_back
    if name not in frame.f_code.co_names or name in frame.f_globals or (name == "int" and _plain_ints):
        return
    if name == "float" or _only_calls(name, str(frame.f_globals.get("__name__"))):
        raise NumberIsAskedError(Asker(frame.f_globals, name))


_GENERICS = frozenset(
    {
        "Callable", "Dict", "Iterable", "Iterator", "List", "Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "Union",
        "dict", "list", "set", "tuple", "type",
    }
)  # fmt: skip
"""What makes a type of others in a name for it: `Batch = tuple[Tensor, int]`."""


@functools.cache
def _only_calls(name: str, module: str) -> bool:
    """Whether a module calls a class of Python's, tests for its instances and annotates with it, and does nothing else.

    `type(x) is int` and `dtype=int` want Python's own.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, TypeError, OSError, SyntaxError):  # no file, as in a notebook: nobody knows what it does
        return False
    harmless: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            harmless.add(node.func)
            if isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                harmless.update(one for kind in node.args[1:] for one in ast.walk(kind))
            if isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
                harmless.update(option.value for option in node.keywords if option.arg == "type")
        if (
            isinstance(node, ast.Subscript)
            and (getattr(node.value, "id", None) or getattr(node.value, "attr", None)) in _GENERICS
        ):
            harmless.update(ast.walk(node.slice))
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            harmless.update(ast.walk(part) if part is not None else ())
    return all(node in harmless for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name)
