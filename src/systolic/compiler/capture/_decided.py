"""Numbers of a trace where Python takes nothing but its own: each answer has a program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...utilities._torch_internals import free_unbacked_symbols
from .._errors import is_user_frame

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
        decides = _decides_all and is_user_frame(sys._getframe(2).f_code.co_filename)
        return bool(result) if decides or not free_unbacked_symbols(result) else result

    return compared


def hashed(number: torch.SymInt) -> int:
    """The hash of a number that the user's code looks up (`self.names[int(t)]`); PyTorch's own is to find none, as before."""
    return hash(int(number)) if is_user_frame(sys._getframe(2).f_code.co_filename) else _hash(number)


_hash: Any = torch.SymInt.__hash__
