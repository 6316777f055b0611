"""Symbolic numbers as Python functions."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import sympy
import torch

from ...utilities._torch_internals import PythonPrinter
from ...utilities._torch_internals import functions as sympy_functions
from ..lowering._array_math import ArrayMath

HostExpression = Callable[[Sequence[Any]], Any]

_NAMES = {name: getattr(sympy_functions, name) for name in dir(sympy_functions) if not name.startswith("_")}


ARRAY_NAMES: dict[str, Any] = {
    "math": ArrayMath,
    "float": lambda x: x.astype(jnp.float64),
    "int": ArrayMath.trunc,
    "where": jnp.where,
    "round": lambda x: jnp.round(x).astype(jnp.int64),
    "max": lambda *values: functools.reduce(jnp.maximum, values),
    "min": lambda *values: functools.reduce(jnp.minimum, values),
}
"""Names that expressions use, for arrays in place of numbers."""


def _chosen(condition: object, value: Any, other: Any) -> Any:
    return value if condition else other


class _Printer(PythonPrinter):
    """Prints conditions for arrays, too: Python's `and` and `if` would ask one for its truth while it is traced."""

    def _print_And(self, expr: sympy.Basic) -> str:
        return " & ".join(f"({self.doprint(one)})" for one in expr.args)

    def _print_Or(self, expr: sympy.Basic) -> str:
        return " | ".join(f"({self.doprint(one)})" for one in expr.args)

    def _print_Not(self, expr: sympy.Basic) -> str:
        return f"(({self.doprint(expr.args[0])}) == False)"

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
    scope: dict[str, Any] = {"math": math, "torch": torch, "where": _chosen, **_NAMES, **(names_in or {})}
    exec(body, scope)  # the source comes from sympy's printer, not from text that anyone typed
    return scope["evaluate"]
