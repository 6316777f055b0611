"""Python numbers that stay variable in a captured graph: batch_idx, lr, a counter in a module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import product
from typing import Any

import sympy
import torch

from ...utilities._torch_internals import DimDynamic, ShapeEnv, constant_source, free_unbacked_symbols, no_location
from .._errors import user_line_of
from ._host_expressions import HostExpression as HostExpression
from ._host_expressions import compiled_expression
from ._speculation import Oracle, nodes_of_symbols

Number = int | float
SymNumber = torch.SymInt | torch.SymFloat


class _AskingShapeEnv(ShapeEnv):
    """PyTorch's bookkeeping of symbols, which asks the oracle where a value of the devices decides the way of a trace."""

    oracle: Oracle | None = None

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.drawn: set[sympy.Symbol] = set()
        self.lines: list[str] = []  # of the user's code, by guard

    def _get_stack_summary(self, is_debug: bool = False, framework_loc: str | None = None) -> tuple[Any, str]:
        """Nothing about where a symbol comes from, which PyTorch's log says: to find that out it imports `torch.export`."""
        return no_location, ""

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: bool | None = None) -> Any:
        """Value of a symbolic number or condition; PyTorch's own answer where there is one, or where it has another way."""
        expression = sym_node.expr
        # where PyTorch only asks whether there is a shorter way, as for a slice that begins at 0, no guard is left
        if fallback_value is not None and sym_node.is_bool():
            known = self._maybe_evaluate_static(expression)
            return fallback_value if known is None else known
        if self.oracle is not None and fallback_value is None and free_unbacked_symbols(expression):
            known = self._maybe_evaluate_static(expression) if sym_node.is_bool() else None
            if known is None:
                known = self.oracle.decide(expression, sym_node.is_bool())
            if known is not None:
                return known
        answer = super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        if len(self.guards) > len(self.lines):
            self.lines += [user_line_of()] * (len(self.guards) - len(self.lines))
        return answer


class SymbolTable:
    """The symbolic numbers of one capture, in the order in which values for them are given later.

    Attributes:
        symbols: the numbers.
        values: those that they have in the step that is traced.
    """

    def __init__(self, oracle: Oracle | None = None) -> None:
        # scalar outputs: `.item()` gives a symbol instead of an error; no specialisation: 0 and 1 are numbers like any
        self.shape_env = _AskingShapeEnv(allow_scalar_outputs=True, specialize_zero_one=False, duck_shape=False)
        self.shape_env.oracle = oracle
        self.symbols: list[sympy.Symbol] = []
        self.values: list[Number] = []

    def forget_oracle(self) -> None:
        """Let go of the values of the batch: the graph keeps PyTorch's bookkeeping for as long as the program lives."""
        self.shape_env.oracle = None

    def make(self, value: Number, is_drawn: bool = False) -> Any:
        """A symbolic number whose value at capture is `value`; one that is drawn is another one in nearly every step."""
        # each has its value as a hint: a branch on it goes the way of this call and leaves a guard; without, the trace would
        # end there
        source = constant_source(f"number{len(self.symbols)}")
        if isinstance(value, float):
            symbol = self.shape_env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
            number = self.shape_env.create_symfloatnode(symbol, hint=value, source=source)
        else:
            symbol = self.shape_env.create_symbol(
                value, source, DimDynamic.DYNAMIC, None, positive=None, do_not_specialize_zero_one=True
            )
            number = self.shape_env.create_symintnode(symbol, hint=value, source=source)
        self.symbols.append(symbol)  # pyright: ignore[reportArgumentType]
        self.values.append(value)
        if is_drawn:
            self.shape_env.drawn.add(symbol)  # pyright: ignore[reportArgumentType]
        return number

    def is_host_known(self, number: object) -> bool:
        """Whether a symbolic number depends on our symbols only, and not on a value from the device."""
        return isinstance(number, SymNumber | torch.SymBool) and number.node.expr.free_symbols <= set(self.symbols)

    def expression(self, number: SymNumber | torch.SymBool) -> HostExpression:
        """A Python function from the symbols' values to the value of `number`."""
        return compiled_expression(number.node.expr, self.symbols)

    def parts(self, number: SymNumber | torch.SymBool) -> tuple[HostExpression, list[SymNumber]] | None:
        """The rule by which a number is computed, and what of; None where it is not, or of more than values and our symbols."""
        expression = number.node.expr
        if expression.is_Symbol:
            return None
        made, symbols = nodes_of_symbols(), sorted(expression.free_symbols, key=str)
        if not all(symbol in made and made[symbol].meta["val"].node.expr == symbol for symbol in symbols):
            return None
        return compiled_expression(expression, symbols), [made[symbol].meta["val"] for symbol in symbols]

    def guards(self) -> list[tuple[HostExpression, str]]:
        """Conditions under which the captured graph is valid, each with the line of the user's code that it comes from."""
        found = []
        for guard, line in zip(self.shape_env.guards, self.shape_env.lines, strict=True):
            if guard.expr.free_symbols and guard.expr.free_symbols <= set(self.symbols):
                found.append((compiled_expression(guard.expr, self.symbols), line))
        return found


def is_of_draws(number: object) -> bool:
    """Whether a number is computed of numbers that the host draws for each step."""
    if not isinstance(number, torch.SymInt) or not isinstance(number.node.shape_env, _AskingShapeEnv):
        return False
    return bool(number.node.expr.free_symbols & number.node.shape_env.drawn)


@contextlib.contextmanager
def numbers_copied_as_themselves() -> Iterator[None]:
    """Inside the block, copies of symbolic numbers are the numbers, as they are of Python's own.

    They have no rule for it: `copy.deepcopy` would copy all that hangs on one, which is the whole trace. Other threads have
    symbols of traces of their own only.
    """
    itself = {"__deepcopy__": lambda self, memo: self, "__copy__": lambda self: self}
    kinds = [kind for kind in (torch.SymInt, torch.SymFloat, torch.SymBool) if "__deepcopy__" not in vars(kind)]
    for kind, (name, method) in product(kinds, itself.items()):
        setattr(kind, name, method)
    try:
        yield
    finally:
        for kind, name in product(kinds, itself):
            delattr(kind, name)
