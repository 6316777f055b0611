"""Values in batches and among arguments: arrays that go to the devices, objects that are themselves alone."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
import torch


class Same:
    """Compares a value by identity; holding the value keeps its id from being reused.

    Args:
        value: may be unhashable.

    Example:
        >>> from systolic.utilities._leaves import Same
        >>> one = []
        >>> Same(one) == Same(one), Same(one) == Same([])
        (True, False)
    """

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def is_array_of_numbers(value: object) -> bool:
    """Whether a value is an array of NumPy's that torch has a type for."""
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        return False
    return value.dtype.kind in "biufc" and value.dtype.char not in "gG"  # g, G: long double, which torch lacks


def is_sparse(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a sparse tensor, in coordinates or in compressed rows."""
    return type(value) is torch.Tensor and value.layout in (torch.sparse_coo, torch.sparse_csr)
