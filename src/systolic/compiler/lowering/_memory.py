"""Memory positions of the elements of a strided view, for values that have no memory layout of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Places:
    """The elements of a strided view of a tensor, by their place in that tensor.

    Attributes:
        order: the tensor's dimensions in the order of memory; flattened like this, places count from 0.
        offset: the place of the view's first element, where the tensor is dense in memory.
        index: the place of every element, where it is not.
        reachable: whether the tensor has all of them; the memory that it is a view of may hold more.
        distinct: whether no two elements of the tensor share memory.
    """

    order: tuple[int, ...]
    offset: int = 0
    index: np.ndarray | None = None
    reachable: bool = True
    distinct: bool = True


def storage_places(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Places:
    """Find the elements that `x.as_strided(size, stride, offset)` shows.

    Args:
        x: the tensor that is viewed; only its layout matters.
        size: the view's shape.
        stride: the view's strides, in the memory that `x` lies in.
        offset: where in that memory the view starts; None: where `x` does.
    """
    base = int(x.storage_offset())
    start = (base if offset is None else int(offset)) - base
    order = _memory_order(x)
    if _is_dense(x, order):
        furthest = start + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        inside = math.prod(size) == 0 or (start >= 0 and furthest < x.numel())
        return Places(order, offset=start, reachable=inside)
    return _looked_up(x, order, positions(size, stride, start))


def positions(size: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    """Position in memory of each element of a strided view."""
    found = np.full(tuple(size), offset, np.int64)
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        spread = (1,) * axis + (length,) + (1,) * (len(size) - axis - 1)
        found = found + (np.arange(length) * step).reshape(spread)
    return found


def _memory_order(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(sorted(range(x.dim()), key=lambda d: -x.stride(d) if x.shape[d] > 1 else 0))


def _is_dense(x: torch.Tensor, order: Sequence[int]) -> bool:
    expected = 1
    for dim in reversed(order):
        if x.shape[dim] > 1 and x.stride(dim) != expected:
            return False
        expected *= x.shape[dim]
    return True


def _looked_up(x: torch.Tensor, order: tuple[int, ...], wanted: np.ndarray) -> Places:
    own = positions([x.shape[d] for d in order], [x.stride(d) for d in order], 0).reshape(-1)
    places, first = np.unique(own, return_index=True)
    if not wanted.size or not places.size:
        return Places(order, index=np.zeros(wanted.shape, np.int32), reachable=not wanted.size)
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    found = bool((places[at] == wanted).all())
    return Places(order, index=first[at].astype(np.int32), reachable=found, distinct=len(places) == len(own))
