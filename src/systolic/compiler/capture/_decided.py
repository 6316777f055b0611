"""Numbers of a trace where Python takes nothing but its own: each answer has a program."""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from ...utilities._installed import is_in_packages
from ...utilities._torch_internals import free_unbacked_symbols
from .._errors import is_user_frame
from ._numpy_numbers import is_numpy_symbol

_TORCH = str(Path(torch.__file__).parent)
_MAY_DO_WITHOUT = (f"{_TORCH}/fx/experimental/proxy_tensor.py", str(Path(__file__).with_name("_sized_ops.py")))
"""Who asks only whether there is a shorter way: C++ through the tracer, for a slice that begins at 0, and our own rules."""
_PYTHON = f"{sysconfig.get_path('stdlib')}/"
_hash: Any = torch.SymInt.__hash__
_decides_all = False


@contextlib.contextmanager
def deciding_conditions(all_of_them: bool) -> Iterator[None]:
    """Inside the block, comparisons of values of the devices are plain booleans, too."""
    global _decides_all
    before, _decides_all = _decides_all, all_of_them
    try:
        yield
    finally:
        _decides_all = before


_WORDS = ("SymBool", "BooleanAtom", "must be a bool", "expected to be boolean")
"""Of errors of Python's, PyTorch's and sympy's."""


def wants_booleans(error: Exception) -> bool:
    """Whether a trace failed because something takes no condition of the trace, but a bool."""
    return any(words in str(error) for words in _WORDS)


def decided_at_once(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of a symbolic number, whose result is a bool unless it depends on values of the devices.

    A symbolic condition would do for `if` alone: `requires_grad_(epoch >= 3)`, `module.train(epoch >= 3)` and
    `sort(descending=...)` take nothing but a bool. A condition on values of the devices stays one as long as it can, since the
    host has to wait for each step that is decided by one: `hits += loss.item() > 1` needs no decision.
    """

    def compared(number: Any, other: Any) -> Any:
        result = compare(number, other)
        if not isinstance(result, torch.SymBool):
            return result
        # who compares is two frames away: the function that chooses between threads is in between
        who = sys._getframe(2).f_code.co_filename
        if who in _MAY_DO_WITHOUT:
            return result
        decides = _decides_all and is_user_frame(who)
        return bool(result) if decides or not free_unbacked_symbols(result) else result

    return compared


def hashed(number: torch.SymInt) -> int:
    """The hash of a number that is looked up (`self.names[int(t)]`); PyTorch's own code is to find none, as before."""
    return _hash(number) if sys._getframe(2).f_code.co_filename.startswith(_TORCH) else hash(int(number))


@contextlib.contextmanager
def instances_of_pythons() -> Iterator[None]:
    """Inside the block, `isinstance(batch_idx, int)` holds for symbolic numbers in the user's code, and there alone."""
    kinds = {torch.SymInt: int, torch.SymFloat: float}
    for kind, plain in kinds.items():
        kind.__getattribute__ = _with_class(plain)
    try:
        yield
    finally:
        for kind in kinds:
            del kind.__getattribute__


def _with_class(plain: type) -> Callable[[Any, str], Any]:
    # `isinstance` asks an object for its class where its type is another one
    def get(self: Any, name: str) -> Any:
        if name == "__class__" and _is_asked_by_user():
            return self.kind if is_numpy_symbol(self) else plain
        return object.__getattribute__(self, name)

    return get


def _is_asked_by_user() -> bool:
    """Whether the user's code asks, be it through the standard library, as `random.Random(batch_idx)` does."""
    frame = sys._getframe(2)
    while frame.f_back is not None and _is_pythons(frame.f_code.co_filename):
        frame = frame.f_back
    return is_user_frame(frame.f_code.co_filename)


def _is_pythons(filename: str) -> bool:
    # packages lie below the standard library, unless there is a virtual environment
    return filename.startswith(_PYTHON) and not is_in_packages(filename)
