"""Ops whose sizes and places are part of the program: a number of the host's has a program for each of its values there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload, free_unbacked_symbols, tree_leaves, tree_map_only
from ._refused import is_always_as_long
from ._symbols import is_of_draws

aten = torch.ops.aten

PLAIN: frozenset[OpOverload] = frozenset(
    {
        aten.repeat.default, aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.unfold.default,
        aten.arange.default, aten.arange.start, aten.arange.start_step, aten.eye.default, aten.eye.m,
        aten.tril.default, aten.triu.default, aten.diagonal.default, aten.tile.default, aten.rot90.default,
        aten.linalg_vector_norm.default, aten.norm.ScalarOpt_dim, aten.norm.Scalar, aten.norm.ScalarOpt_dim_dtype,
    }
)  # fmt: skip


def with_plain_numbers(op: OpOverload) -> Callable[..., Any]:
    """The op with its symbolic numbers as they are for this batch; a guard remembers them."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        if not any(map(_is_symbolic, tree_leaves((args, kwargs)))):
            return NotImplemented
        args, kwargs = tree_map_only(torch.SymInt, int, (args, kwargs))
        args, kwargs = tree_map_only(torch.SymFloat, float, (args, kwargs))
        return op(*args, **kwargs)

    return rule


def _is_symbolic(value: object) -> bool:
    return isinstance(value, torch.SymInt | torch.SymFloat)


SIZES: frozenset[OpOverload] = frozenset(
    {
        aten.expand.default, aten.split_with_sizes.default, aten.split.Tensor, aten.constant_pad_nd.default, aten.topk.default,
        aten.zeros.default, aten.ones.default, aten.full.default, aten.empty.memory_format, aten.rand.default,
        aten.randn.default, aten.new_zeros.default, aten.new_ones.default, aten.new_full.default, aten.new_empty.default,
    }
)  # fmt: skip
"""Ops that take sizes, and maybe other numbers, which stay symbolic."""


def with_plain_sizes(op: OpOverload) -> Callable[..., Any]:
    """The op with its sizes as they are for this batch, where they are numbers of the host's; a guard remembers them."""
    places = [place for place, argument in enumerate(op._schema.arguments) if str(argument.real_type) in ("int", "List[int]")]

    def rule(*args: Any, **kwargs: Any) -> Any:
        sizes = {place: args[place] for place in places if place < len(args)}
        if not any(_is_symbolic(one) and not free_unbacked_symbols(one) for one in tree_leaves(sizes)):
            return NotImplemented
        plain = lambda one: one if free_unbacked_symbols(one) else int(one)  # noqa: E731
        return op(
            *(tree_map_only(torch.SymInt, plain, one) if place in sizes else one for place, one in enumerate(args)), **kwargs
        )

    return rule


SLICES: dict[OpOverload, int] = {
    aten.slice.Tensor: 1, aten.slice_copy.Tensor: 1, aten.slice_scatter.default: 2, aten.slice_backward.default: 2,
}  # fmt: skip
"""The ops of a part of a dimension, and how many arguments stand before the dimension and its bounds."""


def with_plain_bounds(op: OpOverload) -> Callable[..., Any]:
    """The op, whose bounds are plain where its size differs with them; as wide as ever, it lies where the program finds it."""

    def rule(*args: Any, **kwargs: Any) -> Any:
        return _with_bounds(op, args[: SLICES[op]], *args[SLICES[op] :], **kwargs)

    return rule


def _with_bounds(
    op: OpOverload, before: tuple[Any, ...], dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    bounds = (start, end)
    if not any(map(_is_symbolic, bounds)) or any(map(free_unbacked_symbols, bounds)):
        return NotImplemented
    if step == 1 and (is_always_as_long(start, end) or any(map(is_of_draws, bounds))):
        return NotImplemented
    return op(*before, dim, *(int(bound) if _is_symbolic(bound) else bound for bound in bounds), step)
