"""Sizes that are values: `torch.zeros(lengths.max(), 3)`, `torch.arange(index.max() + 1)`, `losses.topk(int(hard.sum()))`.

PyTorch takes a tensor's number by itself, without the `int` that a trace would notice, and lets it through these functions as a
symbol; no program has a shape with a symbol in it. So the number is asked for, as `int` would.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import FunctionalTensor, assume, free_unbacked_symbols
from .._errors import DataDependentError, user_line_of
from ._explain import value_needed
from ._size_reads import asked_size

_Tensor = torch.Tensor
_FACTORIES = frozenset(
    {
        torch.zeros, torch.ones, torch.empty, torch.full, torch.rand, torch.randn, torch.randint, torch.randperm, torch.eye,
        torch.arange,
    }
)  # fmt: skip
"""Functions that begin with no tensor."""

_ALL = frozenset(
    {
        torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn, torch.randperm, torch.eye, torch.arange,
        _Tensor.new_zeros, _Tensor.new_ones, _Tensor.new_empty, _Tensor.view, _Tensor.reshape, _Tensor.expand,
        _Tensor.repeat, _Tensor.tile, torch.topk, _Tensor.topk, torch.tril, _Tensor.tril, torch.triu, _Tensor.triu,
    }
)  # fmt: skip
"""Functions whose arguments are all sizes or the like, but for the tensor that they begin with."""

_IN_LISTS = frozenset(
    {torch.full, torch.randint, torch.reshape, torch.tile, torch.broadcast_to, _Tensor.broadcast_to, _Tensor.new_full}
)
"""Functions whose sizes are a tuple or list among other arguments."""


_AS_TENSORS: dict[Callable[..., Any], int] = {
    # the rule for its gradient compares an exponent with zero, in C++, which is an internal error for a symbol
    torch.pow: 1, _Tensor.pow: 1, _Tensor.__pow__: 1, _Tensor.__rpow__: 1,
    torch.lerp: 2, _Tensor.lerp: 2, _Tensor.lerp_: 2,
}  # fmt: skip
"""The place of a number, by function that has a form with a tensor there, and none with a symbol."""

_NUMBERS = torch.SymInt | torch.SymFloat


def with_sizes(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of a function of PyTorch's, with whole numbers for sizes that are values, and tensors for exponents."""
    place = _AS_TENSORS.get(func)
    if place is not None and len(args) > place and isinstance(args[place], _NUMBERS) and free_unbacked_symbols(args[place]):
        beside = next(one for one in args if isinstance(one, torch.Tensor))
        return (*args[:place], _beside(beside, args[place]), *args[place + 1 :]), kwargs
    if func not in _ALL and func not in _IN_LISTS:
        return args, kwargs
    first, flat = int(func not in _FACTORIES), func in _ALL
    given = tuple(_size(one) if flat or isinstance(one, list | tuple) else one for one in args[first:])
    return (*args[:first], *given), {name: _size(one) if name in _NAMES else one for name, one in kwargs.items()}


_SPLITS = frozenset({torch.split, _Tensor.split, torch.split_with_sizes, _Tensor.split_with_sizes})
_SPLIT_SIZES = ("split_size_or_sections", "split_size", "split_sizes")


def split_by_values(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[torch.Tensor, ...] | None:
    """Slices that `h.split(lengths.tolist())` gives, whose sizes need not be decided; None for any other call.

    Raises:
        RuntimeError: PyTorch's own, where the parts are not the whole.
    """
    if func not in _SPLITS or not args:
        return None
    tensor, *given = args
    sizes = given[0] if given else next((kwargs[name] for name in _SPLIT_SIZES if name in kwargs), None)
    dim = given[1] if len(given) > 1 else kwargs.get("dim", 0)
    if not isinstance(sizes, list | tuple) or not any(map(free_unbacked_symbols, sizes)):
        return None
    counts = torch.stack([torch.scalar_tensor(size, dtype=torch.int64) for size in sizes])
    length = torch.ones(tensor.shape[dim], dtype=torch.int64).sum()  # which may differ between the traces itself
    if not bool((counts >= 0).all() & (counts.sum() == length)):
        return func(tensor, [int(size) for size in sizes], dim)  # PyTorch says what is wrong
    for size in sizes:
        assume(size >= 0)
    begin: Any = 0
    parts: list[torch.Tensor] = []
    for size in sizes:
        parts.append(tensor[(slice(None),) * (dim % tensor.dim()) + (slice(begin, begin + size),)])
        begin = begin + size
    return tuple(parts)


def range_of_reals(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The numbers of `torch.arange(0.0, end, step)` where one of these is a real number of the trace; None for any other call.

    How many there are is a size that is a value. The numbers are computed in float64, as PyTorch does on a CPU.

    Raises:
        DataDependentError: for a range of whole numbers, which PyTorch computes otherwise.
    """
    if func is not torch.arange or not any(map(_is_real_value, (*args, *kwargs.values()))):
        return None
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise DataDependentError(value_needed(user_line_of()))
    bounds = dict(zip(("end",) if len(args) == 1 else ("start", "end", "step"), args, strict=False)) | kwargs
    start, end, step = (_double(bounds.get(name, default)) for name, default in (("start", 0), ("end", None), ("step", 1)))
    count = torch.ceil((end - start) / step).long()
    numbers = torch.arange(asked_size(count.item()), dtype=torch.float64)
    return (start + step * numbers).to(dtype).requires_grad_(kwargs.get("requires_grad", False))


def range_as_long_as_ever(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """The numbers of `torch.arange(i * n, i * n + n)`, of which there are as many for all i; None for any other call."""
    if func is not torch.arange or not any(isinstance(one, torch.SymInt) for one in (*args, *kwargs.values())):
        return None
    bounds = dict(zip(("start", "end", "step"), args, strict=False)) | kwargs
    start, end, step, dtype = (bounds.get(name) for name in ("start", "end", "step", "dtype"))
    if len(args) == 1 or not isinstance(start, torch.SymInt | int) or not isinstance(end, torch.SymInt | int):
        return None
    length = end - start
    if isinstance(length, torch.SymInt) and length.node.expr.is_number:
        length = int(length.node.expr)
    if type(length) is not int or type(step or 1) is not int or dtype not in (None, torch.int64):
        return None
    begin: Any = start  # a number that is added; the stubs do not know of it
    return torch.arange(0, length, step or 1) + begin


def _double(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().double()
    return torch.scalar_tensor(value, dtype=torch.float64)


def _beside(tensor: torch.Tensor, number: torch.SymInt | torch.SymFloat) -> torch.Tensor:
    """A number as a tensor that gives the result the dtype which the number would give it."""
    is_whole = not isinstance(number, torch.SymFloat) or tensor.is_floating_point() or tensor.is_complex()
    symbol: Any = number  # which the stubs do not know of
    return torch.scalar_tensor(symbol, dtype=tensor.dtype if is_whole else torch.get_default_dtype())


_NAMES = ("size", "shape", "n", "m", "end", "start", "step", "k", "diagonal")


def _size(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_size, value)) if type(value) in (list, tuple) else value
    is_whole = isinstance(value, FunctionalTensor) and value.ndim == 0 and not value.is_floating_point()
    if is_whole:
        value = value.item()
    # `int(t)` may have been a number of the program
    return asked_size(value) if isinstance(value, torch.SymInt) and free_unbacked_symbols(value) else value


def _is_real_value(value: object) -> bool:
    if isinstance(value, torch.SymFloat):
        return bool(free_unbacked_symbols(value))
    return isinstance(value, FunctionalTensor) and value.is_floating_point()
