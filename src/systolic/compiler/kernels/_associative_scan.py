"""PyTorch's `associative_scan`, in plain ops: its own needs `torch.vmap`, or a compiler of PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload, TorchDispatchMode, tree_flatten, tree_leaves, tree_unflatten

Leaves = list[torch.Tensor]
Combine = Callable[[Leaves, Leaves], Leaves]


class _Ops(TorchDispatchMode):
    """Notes whether every op inside works on each element by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.is_pointwise = True

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.is_pointwise &= torch.Tag.pointwise in func.tags
        return func(*args, **(kwargs or {}))


def associative_scan(
    combine_fn: Callable[..., Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """PyTorch's function of this name. Combinations of elements are made pair by pair, in as many steps as the length has bits.

    Args:
        combine_fn: takes two slices of `xs` without dimension `dim`, and gives another; associative.
        xs: tensors of the same shape, in any pytree.
        dim: the dimension to scan over.
        reverse: whether to begin at the end.
        combine_mode: "pointwise" or "generic".
    """
    del combine_mode
    leaves, spec = tree_flatten(xs)
    rows = [leaf.movedim(dim, 0) for leaf in leaves]
    rows = [row.flip(0) for row in rows] if reverse else rows

    def combine(left: Leaves, right: Leaves) -> Leaves:
        return tree_leaves(combine_fn(tree_unflatten(left, spec), tree_unflatten(right, spec)))

    first = [row[0] for row in rows]
    with _Ops() as ops:
        combine(first, first)
    found = _in_pairs(combine, rows) if ops.is_pointwise else _one_by_one(combine, rows)
    found = [row.flip(0) for row in found] if reverse else found
    return tree_unflatten([row.movedim(0, dim) for row in found], spec)


def _in_pairs(combine: Combine, rows: Leaves) -> Leaves:
    """Scan over the first dimension by a function that works on many slices as on one."""
    length = rows[0].shape[0]
    if length < 2:
        return rows
    # results at the places 1, 3, 5, ... from pairs; at 2, 4, ... each from the one before
    odd = _in_pairs(combine, combine([row[0 : length - 1 : 2] for row in rows], [row[1::2] for row in rows]))
    if length == 2:
        return [torch.cat([row[:1], one]) for row, one in zip(rows, odd, strict=True)]
    later = combine([one[: (length - 1) // 2] for one in odd], [row[2::2] for row in rows])
    even = [torch.cat([row[:1], one]) for row, one in zip(rows, later, strict=True)]
    return [_interleaved(a, b) for a, b in zip(even, odd, strict=True)]


def _interleaved(even: torch.Tensor, odd: torch.Tensor) -> torch.Tensor:
    pairs = torch.stack([even[: len(odd)], odd], 1).flatten(0, 1)
    return pairs if len(even) == len(odd) else torch.cat([pairs, even[-1:]])


def _one_by_one(combine: Combine, rows: Leaves) -> Leaves:
    found = [[row[0] for row in rows]]
    for place in range(1, rows[0].shape[0]):
        found.append(combine(found[-1], [row[place] for row in rows]))
    return [torch.stack(slices) for slices in zip(*found, strict=True)]
