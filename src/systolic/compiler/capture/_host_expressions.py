"""Symbolic numbers as Python functions."""

from __future__ import annotations

import contextlib
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import sympy
import torch

from ...utilities._torch_internals import PythonPrinter, SymPyValueRangeAnalysis, ValueRanges, handlers, sym_functions
from ...utilities._torch_internals import functions as sympy_functions
from .._capture_thread import replaced
from ..lowering._array_math import ArrayMath

HostExpression = Callable[[Sequence[Any]], Any]

_NAMES = {name: getattr(sympy_functions, name) for name in dir(sympy_functions) if not name.startswith("_")}


class RealMod(sympy.Function):
    """`x % y` of real numbers. PyTorch's takes both for whole ones: `x % 1` is 0 there, and `x % 3 < 1.5` is `x % 3 <= 1`."""

    nargs: tuple[int, ...] = (2,)
    is_real: bool = True  # pyright: ignore[reportIncompatibleVariableOverride]: so sympy says it, and types it otherwise

    @classmethod
    def eval(cls, p: Any, q: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The value, of two numbers."""
        return p % q if p.is_Number and q.is_Number else None


class InSingle(sympy.Function):
    """A real number, rounded to single precision."""

    nargs: tuple[int, ...] = (1,)
    is_real: bool = True  # pyright: ignore[reportIncompatibleVariableOverride]

    @classmethod
    def eval(cls, x: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The value, of a number."""
        return sympy.Float(float(np.float32(float(x)))) if x.is_Number else None


_of_whole_numbers = sympy_functions.PythonMod.eval


def _modulus(p: sympy.Expr, q: sympy.Expr) -> Any:
    return _of_whole_numbers(p, q) if p.is_integer and q.is_integer else RealMod(p, q)


@contextlib.contextmanager
def functions_of_reals() -> Iterator[None]:
    """Inside the block, `%` of symbolic numbers is what it is of Python's, and they may be rounded."""
    handlers().update({one: one.__name__ for one in (RealMod, InSingle)})
    with replaced(sympy_functions.PythonMod, "eval", _modulus):
        for one in (RealMod, InSingle):
            setattr(SymPyValueRangeAnalysis, one.__name__, staticmethod(lambda *numbers: ValueRanges.unknown()))
        yield


_ARRAY_TORCH = types.SimpleNamespace(
    sym_float=lambda x: x.astype(jnp.float64),
    sym_int=ArrayMath.trunc,
    **{f"_sym_{name}": getattr(ArrayMath, name) for name in sym_functions if hasattr(ArrayMath, name)},
)
ARRAY_NAMES: dict[str, Any] = {
    "math": ArrayMath,
    "torch": _ARRAY_TORCH,
    "float": lambda x: x.astype(jnp.float64),
    "in_single": lambda x: x.astype(jnp.float32).astype(jnp.float64),
    "int": ArrayMath.trunc,
    "where": jnp.where,
    "round": lambda x, *digits: jnp.round(x, *digits) if digits else jnp.round(x).astype(jnp.int64),
    "max": lambda *values: functools.reduce(jnp.maximum, values),
    "min": lambda *values: functools.reduce(jnp.minimum, values),
}
"""Names that expressions use, for arrays in place of numbers."""


def _chosen(condition: object, value: Any, other: Any) -> Any:
    return value if condition else other


def _in_single(x: float) -> float:
    return float(np.float32(x))


class _Printer(PythonPrinter):
    """Prints conditions for arrays, too: Python's `and` and `if` would ask one for its truth while it is traced."""

    def _print_And(self, expr: sympy.Basic) -> str:
        return " & ".join(f"({self.doprint(one)})" for one in expr.args)

    def _print_Or(self, expr: sympy.Basic) -> str:
        return " | ".join(f"({self.doprint(one)})" for one in expr.args)

    def _print_Not(self, expr: sympy.Basic) -> str:
        return f"(({self.doprint(expr.args[0])}) == False)"

    def _print_RealMod(self, expr: sympy.Expr) -> str:
        p, q = expr.args
        return f"(({self.doprint(p)}) % ({self.doprint(q)}))"

    def _print_InSingle(self, expr: sympy.Expr) -> str:
        return f"in_single({self.doprint(expr.args[0])})"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:
        branches: Any = expr.args
        *others, (last, _) = branches
        source = self.doprint(last)
        for value, condition in reversed(others):
            source = f"where({self.doprint(condition)}, {self.doprint(value)}, {source})"
        return source


def compiled_expression(
    expression: sympy.Basic, symbols: Sequence[sympy.Basic], names_in: Mapping[str, Any] | None = None
) -> HostExpression:
    """A Python function from the values of some symbols to the value of an expression of them.

    Args:
        expression: the expression.
        symbols: its symbols, in the order of the function's argument.
        names_in: what Python's names mean in it, where that is not what they mean for numbers.
    """
    names = [f"v{i}" for i in range(len(symbols))]
    renamed = expression.xreplace({s: sympy.Symbol(n, integer=s.is_integer) for s, n in zip(symbols, names, strict=True)})
    source = _Printer().doprint(renamed)
    arguments = f"({', '.join(names)},)" if names else "_"
    body = f"def evaluate(values):\n    {arguments} = values\n    return {source}\n"
    own = {"math": math, "torch": torch, "where": _chosen, "in_single": _in_single}
    scope: dict[str, Any] = {**own, **_NAMES, **(names_in or {})}
    exec(body, scope)  # the source comes from sympy's printer, not from text that anyone typed
    return scope["evaluate"]
