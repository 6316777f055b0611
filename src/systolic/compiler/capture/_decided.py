"""Numbers of a trace where Python takes nothing but its own: each answer has a program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import free_unbacked_symbols
from .._errors import is_user_frame


def decided_at_once(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of a symbolic number, whose result is a bool unless it depends on values of the devices.

    A symbolic condition would do for `if` alone: `requires_grad_(epoch >= 3)`, `module.train(epoch >= 3)` and
    `sort(descending=...)` take nothing but a bool.
    """

    def compared(number: Any, other: Any) -> Any:
        result = compare(number, other)
        return bool(result) if isinstance(result, torch.SymBool) and not free_unbacked_symbols(result) else result

    return compared


def hashed(number: torch.SymInt) -> int:
    """The hash of a number that the user's code looks up (`self.names[int(t)]`); PyTorch's own is to find none, as before."""
    return hash(int(number)) if is_user_frame(sys._getframe(2).f_code.co_filename) else _hash(number)


_hash: Any = torch.SymInt.__hash__
