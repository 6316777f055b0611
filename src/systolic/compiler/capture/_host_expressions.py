"""Symbolic numbers as Python functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ...utilities._torch_internals import PythonPrinter
from ...utilities._torch_internals import functions as sympy_functions

HostExpression = Callable[[Sequence[Any]], Any]

_NAMES = {name: getattr(sympy_functions, name) for name in dir(sympy_functions) if not name.startswith("_")}


def compiled_expression(expression: sympy.Basic, symbols: Sequence[sympy.Basic]) -> HostExpression:
    """A Python function from the values of some symbols to the value of an expression of them."""
    names = [f"v{i}" for i in range(len(symbols))]
    renamed = expression.xreplace({s: sympy.Symbol(n, integer=s.is_integer) for s, n in zip(symbols, names, strict=True)})
    source = PythonPrinter().doprint(renamed)
    arguments = f"({', '.join(names)},)" if names else "_"
    body = f"def evaluate(values):\n    {arguments} = values\n    return {source}\n"
    scope: dict[str, Any] = {"math": math, "torch": torch, **_NAMES}
    exec(body, scope)  # the source comes from sympy's printer, not from text that anyone typed
    return scope["evaluate"]
