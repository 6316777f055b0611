"""Checks of values that PyTorch's ops make in passing; a program cannot raise, so a failure shows as NaN instead."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops import effects

from ._patches import REPLACEMENTS

_CHECKS = (torch.ops.aten._linalg_check_errors.default,)
_has_effects = effects.has_effects


def _has_effects_besides_checks(op: Any) -> bool:
    return op not in _CHECKS and _has_effects(op)


# PyTorch orders such checks by tokens, which only its own compiler threads through a graph
REPLACEMENTS.append((effects, "has_effects", _has_effects_besides_checks))
