"""Ops whose result is as large as the values say, for a trace that knows how large it is for this batch.

Each asks for the size, which the oracle answers and the program checks, and is an op of that size from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload, assume, free_unbacked_symbols, statically_known_true
from ._refused import is_always_as_long, is_mask
from ._size_reads import asked_size
from ._symbols import is_of_draws

aten = torch.ops.aten


def _nonzero(x: torch.Tensor) -> torch.Tensor:
    return aten.nonzero_static.default(x, size=asked_size((x != 0).sum()))


def _masked_select(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    x, mask = torch.broadcast_tensors(x, mask)
    if mask.ndim == 0:
        x, mask = x.reshape(1), mask.reshape(1)
    return aten.index.Tensor(x, [mask])


def _has_positions(index: torch.Tensor | None) -> bool:
    return is_mask(index) and index is not None and index.ndim > 0


def _without_masks(indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The indices, with the positions that masks take in place of the masks."""
    plain: list[torch.Tensor | None] = []
    for index in indices:
        if index is not None and _has_positions(index):
            plain += _nonzero(index).unbind(1)
        else:
            plain.append(index)
    return plain


def _index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
    if not any(map(_has_positions, indices)):
        return NotImplemented  # PyTorch then records the op
    return aten.index.Tensor(x, _without_masks(indices))


def _index_put(x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False) -> Any:
    # a mask alone is written by as it is, and needs no size; the gradient of what it selects behind other dimensions has one
    is_alone = sum(index is not None for index in indices) == 1 and not (accumulate and indices[0] is None)
    if not any(map(_has_positions, indices)) or is_alone:
        return NotImplemented
    return aten.index_put.default(x, _without_masks(indices), values, accumulate)


def _equal(x: torch.Tensor, other: torch.Tensor) -> bool:
    return x.shape == other.shape and bool((x == other).all())


def _allclose(x: torch.Tensor, other: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    close = x == other
    if equal_nan:
        close = close | ((x != x) & (other != other))
    difference = (x - other).abs()
    return bool((close | (difference.isfinite() & (difference <= atol + (rtol * other).abs()))).all())


def _bincount(x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0) -> torch.Tensor:
    # one question where `minlength` is enough, which has the same answer for every batch
    size = minlength
    if x.numel() and (not minlength or bool(x.max() >= minlength)):
        size = int(x.max()) + 1
    if weights is None:
        return torch.zeros(size, dtype=torch.int64).index_add(0, x.long(), torch.ones_like(x, dtype=torch.int64))
    dtype = weights.dtype if weights.dtype == torch.float32 else torch.float64
    return torch.zeros(size, dtype=dtype).index_add(0, x.long(), weights.to(dtype))


def _repeat_interleave(repeats: torch.Tensor, *, output_size: int | None = None) -> Any:
    if output_size is not None:
        return NotImplemented
    return aten.repeat_interleave.Tensor(repeats, output_size=asked_size(repeats.sum()))


def _unique2(
    x: torch.Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    del sorted  # eager PyTorch sorts on the CPU whatever is asked for
    values, order = x.reshape(-1).sort(stable=True)
    return _runs(values, order, x.shape, return_inverse, return_counts)


def _unique(x: torch.Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    return _unique2(x, sorted, return_inverse)[:2]


def _unique_consecutive(
    x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    if dim is not None:
        rows = x.movedim(dim, 0)
        found, inverse, counts = _runs(rows, None, torch.Size([len(rows)]), return_inverse, return_counts)
        return found.movedim(0, dim), inverse, counts
    return _runs(x.reshape(-1), None, x.shape, return_inverse, return_counts)


_MOST_COLUMNS = 64
"""Of rows that are put in order as a whole: each column is sorted by."""


def _unique_dim(
    x: torch.Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    del sorted  # eager PyTorch sorts whatever is asked for
    rows = x.movedim(dim, 0)
    columns = rows.reshape(len(rows), -1)
    if columns.shape[1] > _MOST_COLUMNS or x.numel() == 0:
        return NotImplemented
    order = torch.arange(len(rows))
    for column in reversed(columns.unbind(1)):  # sorts keep the order of equals, so the first column decides
        order = order[column[order].argsort(stable=True)]
    found, inverse, counts = _runs(rows[order], order, torch.Size([len(rows)]), return_inverse, return_counts)
    return found.movedim(0, dim), inverse, counts


def _runs(
    values: torch.Tensor, order: torch.Tensor | None, shape: torch.Size, return_inverse: bool, return_counts: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The first of each run of equal elements, or rows; which run each is in; how long they are."""
    none = torch.zeros(0, dtype=torch.int64)
    differs = values[1:] != values[:-1]
    differs = differs.flatten(1).any(1) if differs.ndim > 1 else differs
    begins = torch.cat([torch.ones(min(1, len(values)), dtype=torch.bool), differs])
    (starts,) = _nonzero(begins).unbind(1)
    inverse, counts = none, none
    if return_inverse:
        runs = begins.long().cumsum(0) - 1
        inverse = (runs if order is None else torch.zeros_like(runs).scatter(0, order, runs)).reshape(shape)
    if return_counts:
        counts = torch.cat([starts[1:], torch.full((1,), len(values), dtype=torch.int64)]) - starts
    return values[starts], inverse, counts


def _slice(x: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    if not _is_of_values((start, end)):
        return NotImplemented
    if step == 1 and not any(map(free_unbacked_symbols, (start, end))) and is_always_as_long(start, end):
        return NotImplemented  # numbers that are drawn: PyTorch's tracer knows them
    # of a sum of values, or a multiple, PyTorch does not see that its slice is as long
    if step == 1 and _is_one_value(start) and is_always_as_long(start, end) and bool(start >= 0) and bool(end <= x.shape[dim]):
        # its place alone is computed; PyTorch's tracer is told what has been asked, or it would invent a length
        assume(start >= 0)
        assume(end <= x.shape[dim])
        return NotImplemented
    if step != 1:
        return aten.slice.Tensor(x, dim, *_decided((start, end)), step)
    return aten.index.Tensor(x, [*[None] * (dim % x.ndim), *_nonzero(_between(x.shape[dim], start, end)).unbind(1)])


def _is_one_value(number: Any) -> bool:
    """Whether a number is a value, or a value and a constant."""
    return isinstance(number, torch.SymInt) and number.node.expr.as_coeff_Add()[1].is_Symbol


def _can_stay(part: torch.Tensor, dim: int, start: Any, end: Any, step: int) -> bool:
    """Whether an op on a slice can be recorded: of no values, or always as long and not cut off by the end of its tensor."""
    if not _is_of_values((start, end)):
        return True
    return step == 1 and is_always_as_long(start, end) and bool(end - start == part.shape[dim])


def _between(length: int, start: Any, end: Any) -> torch.Tensor:
    """A mask of the elements of a slice: what is done with what masks select is known for all sizes."""
    places = torch.arange(length)
    selects: torch.Tensor | None = None
    for bound, compare in ((start, torch.ge), (end, torch.lt)):
        if bound is None or (compare is torch.ge and statically_known_true(bound == 0)):
            continue
        number = torch.scalar_tensor(bound, dtype=torch.int64)
        if not statically_known_true(bound >= 0):  # counted from the end, of a length that may differ between the traces
            number = torch.where(number < 0, number + torch.ones_like(places).sum(), number)
        selected = compare(places, number)
        selects = selected if selects is None else selects & selected
    return torch.ones(length, dtype=torch.bool) if selects is None else selects


def _slice_backward(grad: torch.Tensor, sizes: Sequence[int], dim: int, start: Any, end: Any, step: int) -> Any:
    if _can_stay(grad, dim, start, end, step):
        return NotImplemented
    return _slice_scatter(grad.new_zeros(sizes), grad, dim, start, end, step)


def _slice_scatter(
    x: torch.Tensor, source: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    if _can_stay(source, dim, start, end, step):
        return NotImplemented
    if step != 1:
        return aten.slice_scatter.default(x, source, dim, *_decided((start, end)), step)
    selects = _between(x.shape[dim], start, end)
    return aten.index_put.default(x.movedim(dim, 0), [selects], source.movedim(dim, 0)).movedim(0, dim)


def _split(x: torch.Tensor, sizes: Sequence[Any], dim: int = 0) -> Any:
    return aten.split_with_sizes.default(x, _decided(sizes), dim) if _is_of_values(sizes) else NotImplemented


def _pad(x: torch.Tensor, pad: Sequence[Any], value: Any = 0) -> Any:
    return aten.constant_pad_nd.default(x, _decided(pad), value) if _is_of_values(pad) else NotImplemented


def _multinomial(x: torch.Tensor, num_samples: Any, replacement: bool = False, *, generator: Any = None) -> Any:
    if not _is_of_values((num_samples,)):
        return NotImplemented
    return aten.multinomial.default(x, int(num_samples), replacement, generator=generator)


def _is_of_values(numbers: Sequence[Any]) -> bool:
    # a number that is drawn would have a program for each size: the boxes of cutmix have hundreds
    return any(free_unbacked_symbols(number) or is_of_draws(number) for number in numbers)


def _decided(numbers: Sequence[Any]) -> list[Any]:
    """Sizes as plain numbers: those of this batch."""
    return [int(one) if isinstance(one, torch.SymInt) else one for one in numbers]


SIZED: dict[OpOverload, Callable[..., Any]] = {
    aten.nonzero.default: _nonzero,
    aten.argwhere.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten.index.Tensor: _index,
    aten._unsafe_index.Tensor: _index,
    aten.index_put.default: _index_put,
    aten._unsafe_index_put.default: _index_put,
    aten.slice.Tensor: _slice,
    aten.slice_backward.default: _slice_backward,
    aten.slice_scatter.default: _slice_scatter,
    aten.split_with_sizes.default: _split,
    aten.constant_pad_nd.default: _pad,
    aten.multinomial.default: _multinomial,
    aten.equal.default: _equal,
    aten.allclose.default: _allclose,
    aten.is_nonzero.default: lambda x: bool(x.item()),
    aten.bincount.default: _bincount,
    aten.repeat_interleave.Tensor: _repeat_interleave,
    aten._unique2.default: _unique2,
    aten._unique.default: _unique,
    aten.unique_dim.default: _unique_dim,
    aten.unique_consecutive.default: _unique_consecutive,
}
"""By op: what it is made of, given that a value can be asked for; NotImplemented where the op can be recorded as it is."""
