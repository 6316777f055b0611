"""Ops whose sizes and places are part of the program: a number of the host's has a program for each of its values there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...utilities._torch_internals import OpOverload, tree_leaves, tree_map_only

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
