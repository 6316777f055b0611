"""Ops that are never lowered, and the reason that the user reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload, free_unbacked_symbols
from ..lowering._memory import storage_places

aten = torch.ops.aten

_SHAPE = "the shape of its result depends on the values, and a compiled program has fixed shapes. Use {} instead"
_MASK = _SHAPE.format("torch.where(mask, x, other), x * mask or x.masked_fill(~mask, value)")

REFUSED: dict[OpOverload, str] = {
    aten.masked_select.default: _MASK,
    aten.nonzero.default: _SHAPE.format("torch.nonzero_static with a known size, or a mask"),
    aten.bincount.default: _SHAPE.format("torch.zeros(classes).index_add(0, x, weights)"),
    aten.argwhere.default: _SHAPE.format("torch.nonzero_static with a known size, or a mask"),
}
REFUSED |= dict.fromkeys(
    (aten.equal.default, aten.allclose.default, aten.is_nonzero.default),
    "it gives a Python bool, and the values that decide it exist only when the program runs. Use torch.eq, torch.isclose "
    "and .all(), and torch.where",
)
REFUSED |= dict.fromkeys(
    (aten._unique.default, aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default),
    _SHAPE.format("a mask, or find the unique values in the data loader,"),
)
REFUSED |= dict.fromkeys(
    (aten.resize_.default, aten.resize.default, aten.resize_as_.default, aten.set_.source_Tensor),
    "it changes how much memory stands behind a tensor, and tensors on the devices have none of their own",
)


def _masked_reading(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> str | None:
    return _MASK if any(map(is_mask, indices)) else None


def _masked_writing(x: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: object, **__: object) -> str | None:
    if any(map(is_mask, indices)) and sum(index is not None for index in indices) > 1:
        return "a boolean mask next to other indices selects as many elements as the values say. Use torch.where instead"
    return None


def _repetition(repeats: torch.Tensor, *, output_size: int | None = None) -> str | None:
    return None if output_size is not None else _SHAPE.format("repeat_interleave with output_size=...")


def _computed_bounds(x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> str | None:
    if (free_unbacked_symbols(start) or free_unbacked_symbols(end)) and not (step == 1 and is_always_as_long(start, end)):
        return _SHAPE.format("x.index_select(dim, start + torch.arange(length)), or a mask")
    return None


def is_always_as_long(start: Any, end: Any) -> bool:
    """Whether a slice has as many elements for all values that its bounds are computed of, as `[pointer : pointer + 8]` has."""
    if start is None or end is None:
        return False
    length = end - start
    return isinstance(length, int) or bool(length.node.expr.is_Integer)


def is_mask(index: torch.Tensor | None) -> bool:
    """Whether an index says for each element whether it is taken."""
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def _strided(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> str | None:
    return _beyond(x, size, stride, storage_offset)


def _strided_writing(
    x: torch.Tensor, source: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> str | None:
    if not storage_places(x, size, stride, storage_offset).distinct:
        return "it writes to a tensor whose elements share memory. Clone the tensor first"
    return _beyond(x, size, stride, storage_offset)


def _beyond(x: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None) -> str | None:
    if storage_places(x, size, stride, storage_offset).reachable:
        return None
    return "it reaches elements that are in the tensor's memory and not in the tensor. Call it on the whole tensor"


def _product(*matrices: torch.Tensor, **_: object) -> str | None:
    dtypes = list(dict.fromkeys(matrix.dtype for matrix in matrices))
    if len(dtypes) == 1:
        return None
    # the tracer's own rule for these ops lets it pass, and float32 would multiply without anybody's knowledge
    return f"eager PyTorch refuses, too, to multiply {' by '.join(map(str, dtypes))}. Convert one of them with .to(dtype)"


def _convolution(image: torch.Tensor, kernel: torch.Tensor, *_: object, **__: object) -> str | None:
    return _product(image, kernel)


CONDITIONS: dict[OpOverload, Callable[..., str | None]] = {
    aten.index.Tensor: _masked_reading,
    aten._unsafe_index.Tensor: _masked_reading,
    aten.index_put.default: _masked_writing,
    aten._unsafe_index_put.default: _masked_writing,
    aten.slice.Tensor: _computed_bounds,
    aten.repeat_interleave.Tensor: _repetition,
    aten.as_strided.default: _strided,
    aten.as_strided_copy.default: _strided,
    aten.as_strided_scatter.default: _strided_writing,
    aten.mm.default: _product,
    aten.mv.default: _product,
    aten.addmm.default: _product,
    aten.convolution.default: _convolution,
}
"""By op: from the arguments of a call to the reason against that call, or None where it can be lowered."""
