"""`math.cos(self.global_step)` and `np.exp(...)` of a symbolic number: computed by the host before every step.

PyTorch's tracer knows these functions of its numbers under other names. Without them each value would be a program of its own.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...utilities._torch_internals import sym_functions
from .._capture_thread import is_capture_thread, replaced
from ._size_reads import plain

_SYMBOLIC: dict[str, Callable[[Any], Any]] = {
    **{name: sym_functions[name] for name in ("sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan")},
    "exp": lambda x: math.e**x,
    "log2": sym_functions["log2"],
    "log": lambda x: sym_functions["log2"](x) * math.log(2),
    "log10": lambda x: sym_functions["log2"](x) * math.log10(2),
}
# what NumPy calls some of them
_NUMPY_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
# which Python asks for `divmod`
_DIVISIONS: dict[str, Callable[..., Any]] = {
    "__divmod__": lambda x, other: (x // other, x % other),
    "__rdivmod__": lambda x, other: (other // x, other % x),
}


@contextlib.contextmanager
def symbolic_math() -> Iterator[None]:
    """Inside the block, `math` and NumPy take symbolic numbers in the capturing thread."""
    with contextlib.ExitStack() as stack:
        for name, symbolic in _SYMBOLIC.items():
            stack.enter_context(replaced(math, name, _either(getattr(math, name), symbolic)))
        # NumPy asks an object for a method of the function's name
        methods = _SYMBOLIC | {name: _SYMBOLIC[ours] for name, ours in _NUMPY_NAMES.items()} | _DIVISIONS
        for kind in (torch.SymInt, torch.SymFloat):
            for name, symbolic in methods.items():
                stack.enter_context(_method(kind, name, symbolic))
        yield


def _either(original: Callable[..., Any], symbolic: Callable[[Any], Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(x: object, *rest: Any) -> Any:
        return symbolic(x) if isinstance(x, torch.SymInt | torch.SymFloat) and not rest else original(plain(x), *rest)

    return function


@contextlib.contextmanager
def _method(kind: type, name: str, symbolic: Callable[..., Any]) -> Iterator[None]:
    def method(self: object, *others: object) -> Any:
        assert is_capture_thread(), "symbolic numbers live in the thread that captures"
        return symbolic(self, *others)

    setattr(kind, name, method)
    try:
        yield
    finally:
        delattr(kind, name)
