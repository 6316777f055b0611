"""Let Adafactor, which takes Python's `min` and `max` of values of tensors, be captured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import _adafactor

from ._patches import CONTEXTS


@contextlib.contextmanager
def symbolic_extrema() -> Iterator[None]:
    """Inside the block, the module's `min` and `max` take numbers that only the device knows."""
    scope: dict[str, Any] = _adafactor.__dict__
    scope.update(min=torch.sym_min, max=torch.sym_max)
    try:
        yield
    finally:
        del scope["min"], scope["max"]


CONTEXTS.append(symbolic_extrema)
