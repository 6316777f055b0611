"""Python numbers that stay variable in a captured graph: batch_idx, lr, a counter in a module."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ...utilities._torch_internals import ConstantSource, DimDynamic, PythonPrinter, ShapeEnv
from ...utilities._torch_internals import functions as sympy_functions

Number = int | float
SymNumber = torch.SymInt | torch.SymFloat
HostExpression = Callable[[Sequence[Number]], Any]


class SymbolTable:
    """The symbolic numbers of one capture, in the order in which values for them are given later."""

    def __init__(self) -> None:
        # scalar outputs: `.item()` gives a symbol instead of an error; no specialisation: 0 and 1 are numbers like any
        self.shape_env = ShapeEnv(allow_scalar_outputs=True, specialize_zero_one=False, duck_shape=False)
        self.symbols: list[sympy.Symbol] = []

    def make(self, value: Number) -> Any:
        """A symbolic number whose value at capture is `value`."""
        # each has its value as a hint: a branch on it goes the way of this call and leaves a guard; without, the trace would
        # end there
        source = ConstantSource(f"number{len(self.symbols)}")
        if isinstance(value, float):
            symbol = self.shape_env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
            number = self.shape_env.create_symfloatnode(symbol, hint=value, source=source)
        else:
            symbol = self.shape_env.create_symbol(
                value, source, DimDynamic.DYNAMIC, None, positive=None, do_not_specialize_zero_one=True
            )
            number = self.shape_env.create_symintnode(symbol, hint=value, source=source)
        self.symbols.append(symbol)  # pyright: ignore[reportArgumentType]
        return number

    def is_host_known(self, number: Any) -> bool:
        """Whether a symbolic number depends on our symbols only, and not on a value from the device."""
        return isinstance(number, SymNumber | torch.SymBool) and number.node.expr.free_symbols <= set(self.symbols)

    def expression(self, number: Any) -> HostExpression:
        """A Python function from the symbols' values to the value of `number`."""
        return _compiled(number.node.expr, self.symbols)

    def guards(self) -> list[tuple[HostExpression, str]]:
        """Conditions under which the captured graph is valid, each with its text."""
        found = []
        for guard in self.shape_env.guards:
            if guard.expr.free_symbols and guard.expr.free_symbols <= set(self.symbols):
                found.append((_compiled(guard.expr, self.symbols), f"{guard.expr} at {guard.sloc}"))
        return found


_NAMES = {name: getattr(sympy_functions, name) for name in dir(sympy_functions) if not name.startswith("_")}


def _compiled(expression: sympy.Basic, symbols: list[sympy.Symbol]) -> HostExpression:
    names = [f"v{i}" for i in range(len(symbols))]
    renamed = expression.xreplace({s: sympy.Symbol(n, integer=s.is_integer) for s, n in zip(symbols, names, strict=True)})
    source = PythonPrinter().doprint(renamed)
    arguments = f"({', '.join(names)},)" if names else "_"
    body = f"def evaluate(values):\n    {arguments} = values\n    return {source}\n"
    scope: dict[str, Any] = {"math": math, "torch": torch, **_NAMES}
    exec(body, scope)  # the source comes from sympy's printer, not from text that anyone typed
    return scope["evaluate"]
