"""`np.float64` and its like as numbers of a trace: schedules are arrays, and what is taken out of one is no number of Python's.

They are computed with as NumPy does: `np.float32(0.1) * 2` is rounded to single precision, a whole number divided is an
`np.float64`, and `torch.tensor` keeps the dtype. To a tensor they are numbers of Python's, as in eager PyTorch.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
import torch

from ...utilities._torch_internals import free_unbacked_symbols, get_proxy_mode, handle_sym_dispatch
from ._host_expressions import HostExpression, InSingle

NUMPY_NUMBERS = (np.float64, np.float32, np.int64)
"""The kinds that may be symbolic. A narrower whole number wraps around, which no symbol does."""


class NumpyOnlyError(TypeError):
    """A symbolic number is used in a way that only NumPy's own can be."""

    def __init__(self, use: str) -> None:
        super().__init__(f"{use} of a symbolic number (SymFloat or SymInt) that stands for one of NumPy's")


class NumpyReal(torch.SymFloat):
    """A symbolic number that stands for an `np.float64` or an `np.float32`."""

    def __init__(self, number: torch.SymFloat, kind: type) -> None:
        super().__init__(number.node)
        self.kind = kind


class NumpyWhole(torch.SymInt):
    """A symbolic number that stands for an `np.int64`."""

    def __init__(self, number: torch.SymInt, kind: type) -> None:
        super().__init__(number.node)
        self.kind = kind


NumpySymbol = NumpyReal | NumpyWhole


def is_numpy_symbol(value: object) -> TypeGuard[NumpySymbol]:
    """Whether a value is a symbolic number that stands for one of NumPy's."""
    return type(value) in (NumpyReal, NumpyWhole)


def plain_value(value: object) -> Any:
    """A number of NumPy's as the one of Python's that it is to a tensor; anything else as it is."""
    return value.item() if isinstance(value, np.generic) and type(value) in NUMPY_NUMBERS else value


def of_kind(number: object, kind: type) -> Any:
    """A symbolic number that stands for one of this class: of NumPy's, or of Python's."""
    if not isinstance(number, torch.SymFloat | torch.SymInt):
        own: Any = number
        return kind(own) if kind in NUMPY_NUMBERS else own
    if kind not in NUMPY_NUMBERS:
        if issubclass(kind, np.generic) and kind is not np.bool_:
            raise NumpyOnlyError(kind.__name__)
        return without_kind(number)
    if kind is np.float32:
        number = _in_single(without_kind(number))
    return NumpyWhole(number, kind) if isinstance(number, torch.SymInt) else NumpyReal(number, kind)


def without_kind(number: object) -> Any:
    """A symbolic number as one that stands for a number of Python's; anything else as it is."""
    if type(number) is NumpyReal:
        return torch.SymFloat(number.node)
    return torch.SymInt(number.node) if type(number) is NumpyWhole else number


def in_kind(expression: HostExpression, kind: type) -> HostExpression:
    """A formula whose value is a number of NumPy's."""
    return lambda values: kind(expression(values))


def dtype_of(number: NumpySymbol) -> torch.dtype:
    """The dtype of a tensor that PyTorch makes of one."""
    return {np.float64: torch.float64, np.float32: torch.float32, np.int64: torch.int64}[number.kind]


def _in_single(number: torch.SymFloat) -> torch.SymFloat:
    if isinstance(number.node.expr, InSingle) or number.node.expr.is_Symbol:  # one that the step got as it is
        return number
    if free_unbacked_symbols(number) or get_proxy_mode() is None:
        raise NumpyOnlyError("a float32")
    return handle_sym_dispatch(_rounded, (number,), {})


def _rounded(number: torch.SymFloat) -> torch.SymFloat:
    hint = float(np.float32(number.node.hint))
    return number.node.shape_env.create_symfloatnode(InSingle(number.node.expr), hint=hint)


def _sample(value: object) -> Any:
    """A number of the same class, by which NumPy tells of which class a result is."""
    if is_numpy_symbol(value):
        return value.kind(1)
    if isinstance(value, torch.SymFloat | torch.SymInt):
        return 1.0 if isinstance(value, torch.SymFloat) else 1
    kind: Any = type(value)
    return kind(1)


def _is_number(value: object) -> bool:
    kinds = (bool, int, float, np.bool_, torch.SymInt, torch.SymFloat)
    return isinstance(value, np.number) or type(value) in kinds or is_numpy_symbol(value)


def _computed(function: Callable[..., Any], *numbers: Any, of_samples: Callable[..., Any] | None = None) -> Any:
    """The result of a function of numbers, with the class that it has in NumPy, of whose function it may be another name."""
    if function in (operator.truediv, operator.floordiv, operator.mod) and bool(numbers[1] == 0):
        raise NumpyOnlyError("division by zero")  # is infinite
    if function is operator.pow and bool(numbers[0 if isinstance(numbers[1], float | torch.SymFloat) else 1] < 0):
        raise NumpyOnlyError("a power")  # is no number, or an error
    plain = [one.item() if isinstance(one, np.generic) else without_kind(one) for one in numbers]
    return of_kind(function(*plain), type((of_samples or function)(*map(_sample, numbers))))


def _operator(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: object, *others: object) -> Any:
        return _computed(function, self, *others) if all(map(_is_number, others)) else NotImplemented

    return method


def _reflected(name: str) -> Callable[..., Any]:
    function = getattr(operator, name)

    def method(self: object, other: object) -> Any:
        return _computed(function, other, self) if _is_number(other) else NotImplemented

    return method


def _round(self: NumpySymbol, digits: int | None = None) -> Any:
    number = builtins.round(without_kind(self)) if digits is None else builtins.round(without_kind(self), digits)
    return number if digits is None else of_kind(number, self.kind)


def _clip(self: NumpySymbol, *bounds: object, out: None = None) -> Any:
    alike = (int, self.kind) if self.kind is np.int64 else (int, float, self.kind)
    if out is not None or not all(one is None or type(one) in alike for one in bounds):
        raise NumpyOnlyError("numpy.clip")
    return of_kind(without_kind(self).clip(*map(plain_value, bounds)), self.kind)


def _ufunc(self: object, ufunc: np.ufunc, method: str, *inputs: object, **named: object) -> Any:
    """A function of NumPy's that is given a symbolic number: those that are an operator of Python's, and ours of one number."""
    del self
    if method == "__call__" and not named and all(map(_is_number, inputs)):
        if ufunc in _OF_OPERATORS:
            return _computed(_OF_OPERATORS[ufunc], *inputs, of_samples=ufunc)
        own = getattr(torch.SymFloat, ufunc.__name__, None)
        if own is not None and len(inputs) == 1:
            return of_kind(own(without_kind(inputs[0])), type(ufunc(_sample(inputs[0]))))
    raise NumpyOnlyError(f"numpy.{ufunc.__name__}")


_OF_OPERATORS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul, np.divide: operator.truediv,
    np.floor_divide: operator.floordiv, np.remainder: operator.mod, np.power: operator.pow, np.negative: operator.neg,
    np.absolute: operator.abs, np.less: operator.lt, np.less_equal: operator.le, np.greater: operator.gt,
    np.greater_equal: operator.ge, np.equal: operator.eq, np.not_equal: operator.ne,
    np.minimum: torch.sym_min, np.maximum: torch.sym_max,
}  # fmt: skip
_REFLECTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
_ONE_WAY = ("neg", "pos", "abs", "lt", "le", "gt", "ge", "eq", "ne")


def _complete(cls: type) -> None:
    own: dict[str, Any] = {f"__{name}__": _operator(name) for name in (*_REFLECTED, *_ONE_WAY)}
    own |= {f"__r{name}__": _reflected(name) for name in _REFLECTED}
    own |= {"__round__": _round, "__array_ufunc__": _ufunc, "clip": _clip}
    own |= {"__hash__": lambda self: hash(without_kind(self)), "__bool__": lambda self: bool(without_kind(self))}
    own |= {"item": without_kind, "dtype": property(lambda self: np.dtype(self.kind))}
    for name, value in own.items():
        setattr(cls, name, value)


_complete(NumpyReal)
_complete(NumpyWhole)
