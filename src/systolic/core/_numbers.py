"""Numbers as tensors, in the dtypes that Lightning gives them before it gathers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

_DTYPES: list[tuple[tuple[type, ...], torch.dtype]] = [
    ((bool, torch.SymBool), torch.uint8),
    ((int, torch.SymInt), torch.int32),
    ((float, torch.SymFloat), torch.float32),
]


def as_tensor(value: Any) -> Any:
    """A number or an array as a tensor; anything else as it is."""
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value)
    for types, dtype in _DTYPES:
        if isinstance(value, types):
            return torch.full((), value, dtype=dtype)
    return value
