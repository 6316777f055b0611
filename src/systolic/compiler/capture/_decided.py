"""Comparisons of the host's numbers (`self.current_epoch >= 3`): plain conditions, of which each answer has a program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import free_unbacked_symbols


def decided_at_once(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison of a symbolic number, whose result is a bool unless it depends on values of the devices.

    A symbolic condition would do for `if` alone. `requires_grad_(epoch >= 3)`, `module.train(epoch >= 3)`, `sort(descending=...)`
    and most others take nothing but a bool.
    """

    def compared(number: Any, other: Any) -> Any:
        result = compare(number, other)
        return bool(result) if isinstance(result, torch.SymBool) and not free_unbacked_symbols(result) else result

    return compared
