"""The op table: which JAX function stands for which PyTorch op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ...utilities._torch_internals import OpOverload, OpOverloadPacket

Lowering = Callable[..., Any]
F = TypeVar("F", bound=Lowering)

_TABLE: dict[OpOverload, Lowering] = {}
# ops that need not be there, by name: of packages that are not installed, of other releases of PyTorch
_NAMED: dict[str, Lowering] = {}


def lowers(*ops: OpOverload) -> Callable[[F], F]:
    """Mark a JAX function as the lowering of one or more ops.

    The function is called with the op's own arguments: every tensor is a `jax.Array`, everything else (numbers,
    lists, `torch.dtype`, `None`) is what PyTorch passed. Its results are cast to the dtypes that PyTorch announced.
    """

    def mark(function: F) -> F:
        for op in ops:
            assert op not in _TABLE, f"{op} is lowered twice"
            _TABLE[op] = function
        return function

    return mark


def lowers_named(name: str) -> Callable[[F], F]:
    """Mark a JAX function as the lowering of an op that another package registers when it is imported, or another PyTorch has.

    Args:
        name: library, op and overload, without "default": "transformers::grouped_mm_fallback".
    """

    def mark(function: F) -> F:
        assert name not in _NAMED, f"{name} is lowered twice"
        _NAMED[name] = function
        return function

    return mark


def find_lowering(op: OpOverload) -> Lowering | None:
    """Return the lowering of `op`, or None where there is none."""
    return _TABLE[op] if op in _TABLE else _NAMED.get(op.name())


def lowered_ops() -> list[OpOverload]:
    """Every op in the table, in the order of registration."""
    return list(_TABLE)


def register_lowering(op: OpOverload, function: Lowering) -> None:
    """Teach systolic an op, or replace the way in which it lowers one.

    Args:
        op: an overload such as `torch.ops.aten.sinc.default` or an op of your own library.
        function: takes the op's arguments with every tensor as a `jax.Array`; returns a `jax.Array`, or a tuple of
            them for an op with several results. It is traced, so it must be a pure JAX function.

    Raises:
        TypeError: when `op` is not an overload (`torch.ops.aten.sinc` is a packet of several).

    Example:
        >>> import torch, jax.numpy as jnp, systolic
        >>> systolic.register_lowering(torch.ops.aten.sinc.default, jnp.sinc)
    """
    if not isinstance(op, OpOverload):
        raise TypeError(
            "register_lowering expects one overload of an op, such as torch.ops.aten.sinc.default. "
            f"Received: {op!r}. Pick one of its overloads: {_overloads(op)}."
        )
    _TABLE[op] = function


def _overloads(op: object) -> str:
    if isinstance(op, OpOverloadPacket):
        return ", ".join(f"{op}.{name}" for name in op.overloads())
    return "torch.ops.<library>.<op>.<overload>"
