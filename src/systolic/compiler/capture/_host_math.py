"""`math.cos(self.global_step)` and `np.exp(...)` of a symbolic number: computed by the host before every step.

PyTorch's tracer knows these functions of its numbers under other names. Without them each value would be a program of its own.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch

from ...utilities._torch_internals import FunctionalTensor, free_unbacked_symbols, sym_functions
from .._capture_thread import is_capture_thread, replaced
from ._size_reads import plain

_SYMBOLIC: dict[str, Callable[[Any], Any]] = {
    **{name: sym_functions[name] for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan")},
    "exp": lambda x: math.e**x,
    "log2": sym_functions["log2"],
    "log": lambda x: sym_functions["log2"](x) * math.log(2),
    "log10": lambda x: sym_functions["log2"](x) * math.log10(2),
    "fabs": abs,
}
_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "pow": lambda x, y: x**y,
    "log": lambda x, base: math.log(x) / math.log(base),
    "hypot": lambda x, y: sym_functions["sqrt"](x * x + y * y),
}
_TESTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinite": torch.isfinite
}  # fmt: skip
# what NumPy calls some of them
_NUMPY_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_EXTREMES: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "min": (torch.sym_min, torch.lt), "max": (torch.sym_max, torch.gt)
}  # fmt: skip
"""By name: its rule for numbers of the host, and the comparison by which Python takes another number for the result."""
_FUNCTIONS = tuple(name for name, value in vars(math).items() if callable(value) and not name.startswith("_"))
_OPS: dict[str, Callable[..., torch.Tensor]] = {
    "degrees": torch.rad2deg,
    "radians": torch.deg2rad,
    **{name: getattr(torch, name) for name in ("erf", "erfc", "expm1", "exp2", "log1p", "lgamma", "asinh", "acosh", "atanh")},
    **{name: getattr(torch, name) for name in ("atan2", "copysign", "fmod")},
}
# which Python asks for `divmod`
_DIVISIONS: dict[str, Callable[..., Any]] = {
    "__divmod__": lambda x, other: (x // other, x % other),
    "__rdivmod__": lambda x, other: (other // x, other % x),
}


@contextlib.contextmanager
def symbolic_math() -> Iterator[None]:
    """Inside the block, `math` and NumPy take symbolic numbers in the capturing thread."""
    with contextlib.ExitStack() as stack:
        functions = {name: getattr(math, name) for name in _FUNCTIONS}
        functions |= {name: _either(functions[name], symbolic) for name, symbolic in _SYMBOLIC.items()}
        functions |= {name: _of_two(functions[name], symbolic) for name, symbolic in _OF_TWO.items()}
        functions |= {name: _tested(functions[name], test) for name, test in _TESTS.items()}
        for name, function in functions.items():
            stack.enter_context(replaced(math, name, _of_tensors(function, _OPS.get(name))))
        for name, test in _TESTS.items():  # NumPy asks an object for no method of these names
            stack.enter_context(replaced(np, name, _tested(getattr(np, name), test)))
        for name, (symbolic, takes) in _EXTREMES.items():
            stack.enter_context(replaced(builtins, name, _extreme(getattr(builtins, name), symbolic, takes)))
        # NumPy asks an object for a method of the function's name
        methods = {"clip": _clip} | _SYMBOLIC | {name: _SYMBOLIC[ours] for name, ours in _NUMPY_NAMES.items()} | _DIVISIONS
        for kind in (torch.SymInt, torch.SymFloat):
            for name, symbolic in methods.items():
                stack.enter_context(_method(kind, name, symbolic))
        yield


def _of_tensors(function: Callable[..., Any], op: Callable[..., torch.Tensor] | None) -> Callable[..., Any]:
    """A function of `math`, which takes a tensor's number by `__float__`: a number of the program, as `t.item()` is.

    Args:
        function: of `math`.
        op: the same of tensors, where numbers of the program have no such function.
    """

    @functools.wraps(function)
    def of_numbers(*given: Any, **named: Any) -> Any:
        numbers = [_number(value) for value in given]
        if op is not None and any(isinstance(n, torch.SymInt | torch.SymFloat) and free_unbacked_symbols(n) for n in numbers):
            # in the dtype that reals of the program have: TPUs know no `erf` of float64
            return op(*[torch.scalar_tensor(number, dtype=torch.get_default_dtype()) for number in numbers]).item()
        return function(*numbers, **named)

    return of_numbers


def _number(value: Any) -> Any:
    is_one = isinstance(value, FunctionalTensor) and value.numel() == 1 and not value.is_complex()
    return value.item() if is_one else value


def _either(original: Callable[..., Any], symbolic: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(x: object, *rest: Any) -> Any:
        return symbolic(x) if isinstance(x, torch.SymInt | torch.SymFloat) and not rest else original(plain(x), *rest)

    return function


def _of_two(original: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*numbers: Any) -> Any:
        is_symbolic = len(numbers) == 2 and any(isinstance(x, torch.SymInt | torch.SymFloat) for x in numbers)
        return symbolic(*numbers) if is_symbolic else original(*numbers)

    return function


def _extreme(
    original: Callable[..., Any], symbolic: Callable[[Any, Any], Any], takes: Callable[[Any, Any], Any]
) -> Callable[..., Any]:
    """`min` or `max`, by which annealing stops at an end (`min(1.0, step / 1000)`): two programs, if it were a condition."""

    @functools.wraps(original)
    def function(*args: Any, **named: Any) -> Any:
        given = args[0] if len(args) == 1 else args
        if named or type(given) not in (list, tuple) or not any(isinstance(x, torch.SymInt | torch.SymFloat) for x in given):
            return original(*args, **named)
        if not all(type(x) in (int, float, torch.SymInt, torch.SymFloat) for x in given):
            return original(*args)
        if any(map(free_unbacked_symbols, given)):
            return _extreme_value(given, takes) if len({_is_float(x) for x in given}) == 1 else original(*args)
        return functools.reduce(symbolic, given)

    return function


def _extreme_value(numbers: Sequence[Any], takes: Callable[[Any, Any], Any]) -> Any:
    """The one of some numbers, values of the devices among them, that Python would take, which matters where one is NaN."""
    dtype = torch.float64 if _is_float(numbers[0]) else torch.int64
    taken, *others = (torch.scalar_tensor(number, dtype=dtype) for number in numbers)
    for other in others:
        taken = torch.where(takes(other, taken), other, taken)
    return taken.item()


def _is_float(number: object) -> bool:
    return isinstance(number, float | torch.SymFloat)


def _clip(number: Any, low: Any = None, high: Any = None, out: None = None) -> Any:
    if out is not None:
        raise TypeError("no symbolic number is written to")  # NumPy then takes its value
    number = number if low is None else builtins.max(number, low)
    return number if high is None else builtins.min(number, high)


def _tested(original: Callable[..., Any], test: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A test of a number that no rule of numbers can state: of a value of the devices it is the tensor that is tested."""

    @functools.wraps(original)
    def function(x: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(x, torch.SymFloat) and free_unbacked_symbols(x):
            return bool(test(torch.scalar_tensor(cast(Any, x))))
        return original(plain(x), *rest, **named)

    return function


@contextlib.contextmanager
def _method(kind: type, name: str, symbolic: Callable[..., Any]) -> Iterator[None]:
    def method(self: object, *others: object, **named: object) -> Any:
        assert is_capture_thread(), "symbolic numbers live in the thread that captures"
        return symbolic(self, *others, **named)

    setattr(kind, name, method)
    try:
        yield
    finally:
        delattr(kind, name)
