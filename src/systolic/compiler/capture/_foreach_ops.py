"""Ops for lists of tensors (`torch._foreach_*`): each is the op of one tensor, for every tensor of the list."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload

_NAMESPACE = "aten::_foreach_"


def _with_value(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, whose last argument has no name in the op for lists."""
    return lambda tensor, first, second, value=1: function(tensor, first, second, value=value)


_OF_ONE: dict[str, Callable[..., Any]] = {
    **{
        function.__name__: function
        for function in (
            torch.abs, torch.add, torch.ceil, torch.clamp_max, torch.clamp_min, torch.cos, torch.div, torch.erf, torch.exp,
            torch.expm1, torch.floor, torch.frac, torch.lerp, torch.log, torch.log10, torch.log1p, torch.log2, torch.maximum,
            torch.minimum, torch.mul, torch.neg, torch.pow, torch.reciprocal, torch.round, torch.rsqrt, torch.sigmoid,
            torch.sign, torch.sin, torch.sqrt, torch.sub, torch.tan, torch.tanh, torch.trunc,
        )
    },
    "addcdiv": _with_value(torch.addcdiv),
    "addcmul": _with_value(torch.addcmul),
    "copy": lambda tensor, source, non_blocking=False: source.to(tensor.dtype).expand_as(tensor).clone(),
    "norm": torch.linalg.vector_norm,
    "zero": torch.zeros_like,
}  # fmt: skip


def rule_for_lists(op: OpOverload) -> Callable[..., list[torch.Tensor]] | None:
    """The rule that splits an op for lists into those of their tensors; None for any other op."""
    name = op.name().partition(".")[0]
    one = _OF_ONE.get(name.removeprefix(_NAMESPACE)) if name.startswith(_NAMESPACE) else None
    if one is None:
        return None

    def split(tensors: list[torch.Tensor], *others: Any, **kwargs: Any) -> list[torch.Tensor]:
        # a list has an entry for each tensor; a tensor of scalars, too, where there are three lists
        packed = op.name().endswith(("addcdiv.Tensor", "addcmul.Tensor"))
        columns = [other.unbind() if packed and isinstance(other, torch.Tensor) else other for other in others]
        rows = [[c[i] if isinstance(c, list | tuple) else c for c in columns] for i in range(len(tensors))]
        return [one(tensor, *row, **kwargs) for tensor, row in zip(tensors, rows, strict=True)]

    return split
