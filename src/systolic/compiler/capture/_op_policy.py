"""Policy for ops: which are recorded, which are split into simpler ones, and which are refused."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ...utilities._entries import Entry, see
from ...utilities._torch_internals import (
    COMPOSITE,
    OpOverload,
    _core_aten_decompositions_post_autograd,
    has_kernel,
    primitive_as_aten,
)
from .._errors import UnsupportedOpError, user_line_of
from ..lowering import find_lowering
from ._custom_ops import rule_for_custom_op
from ._foreach_ops import rule_for_lists
from ._generators import own_generator, takes_generator
from ._host_draws import HostDraws
from ._least_squares import rule_for_least_squares
from ._op_origins import current_module
from ._plain_numbers import PLAIN, SIZES, SLICES, with_plain_bounds, with_plain_numbers, with_plain_sizes
from ._refused import CONDITIONS, REFUSED
from ._script_ops import rule_for_script_op
from ._sized_ops import SIZED


def refuse_op(op: OpOverload, reason: str) -> None:
    """Never lower `op`, and say why; for ops whose result shape depends on data, or that are known to be wrong."""
    REFUSED[op] = reason


class OpPolicy(Mapping[OpOverload, Callable[..., Any]]):
    """A decomposition table for the tracer.

    An op in the lowering table is recorded as it is. Another is decomposed by PyTorch's own rules, until only ops in
    the table are left. One that has neither is an error, raised on the line that called it.

    Attributes:
        refusal: the last such error; TorchScript lets none through, and raises one of its own without a text.

    Args:
        sized: whether values can be asked for, so that ops whose result is as large as the values say are possible.
        draws: what draws from generators of the user's own.
    """

    def __init__(self, sized: bool = False, draws: HostDraws | None = None) -> None:
        self._draws = draws
        self.refusal: UnsupportedOpError | None = None
        self._sized = SIZED if sized else {}

    def __contains__(self, op: object) -> bool:
        if not isinstance(op, OpOverload) or _is_internal(op):
            return False
        ruled = (
            op in REFUSED or op in CONDITIONS or op in self._sized or op in _MEANS or op in PLAIN or op in SLICES or op in SIZES
        )
        return ruled or takes_generator(op) or find_lowering(op) is None

    def __getitem__(self, op: OpOverload) -> Callable[..., Any]:
        rule = self._rule(op)
        if takes_generator(op):
            rule = _first(self._own_draw(op), _first(_conditional(op, own_generator), rule))

        def noted(*args: Any, **kwargs: Any) -> Any:
            try:
                return rule(*args, **kwargs)
            except UnsupportedOpError as error:
                self.refusal = error
                raise

        return noted

    def looks_at_kinds_alone(self, op: OpOverload) -> bool:
        """Whether an op has a lowering, and nothing but shapes and dtypes of a call decides that it is recorded as it is."""
        return find_lowering(op) is not None and not (op in REFUSED or op in SIZED or takes_generator(op) or _is_internal(op))

    def _own_draw(self, op: OpOverload) -> Callable[..., Any]:
        def rule(*args: Any, generator: Any = None, **kwargs: Any) -> Any:
            if generator is None or generator is torch.default_generator or self._draws is None:
                return NotImplemented
            return self._draws.of_torch(op, generator, args, kwargs)

        return rule

    def _rule(self, op: OpOverload) -> Callable[..., Any]:
        if op in SIZES:
            return _first(with_plain_sizes(op), self._other_rule(op))
        return _first(with_plain_bounds(op), self._other_rule(op)) if op in SLICES else self._other_rule(op)

    def _other_rule(self, op: OpOverload) -> Callable[..., Any]:
        if op in PLAIN:
            return with_plain_numbers(op)
        if op in self._sized:
            rule = self._sized[op]
            if op in CONDITIONS:
                return _first(rule, _conditional(op, CONDITIONS[op]))
            return _first(rule, _refusal(op, REFUSED[op])) if op in REFUSED else rule
        if op in _MEANS:
            return _gradient_of_nothing
        if op in REFUSED:
            return _refusal(op, REFUSED[op])
        if op in CONDITIONS:
            return _conditional(op, CONDITIONS[op])
        if find_lowering(op) is not None:
            return lambda *_, **__: NotImplemented  # PyTorch then records the op
        if op in _rules():
            return _rules()[op]
        if has_kernel(op.name(), COMPOSITE) or COMPOSITE in op.py_kernels:
            return op.decompose
        # what PyTorch's rules for forward-mode derivatives call; each knows the ordinary op that it is
        if op.namespace == "prims":
            return primitive_as_aten(op)
        for rule_for in (rule_for_lists, rule_for_least_squares, rule_for_script_op, rule_for_custom_op):
            if (rule := rule_for(op)) is not None:
                return _first(rule, _refusal(op, "systolic has no lowering for it"))
        return _refusal(op, "systolic has no lowering for it")

    def __iter__(self) -> Iterator[OpOverload]:
        return (op for op in _rules() if isinstance(op, OpOverload))

    def __len__(self) -> int:
        return len(_rules())


_MEANS = (
    torch.ops.aten.mse_loss_backward.default,
    torch.ops.aten.smooth_l1_loss_backward.default,
    torch.ops.aten.huber_loss_backward.default,
)
"""Gradients of means, whose shapes PyTorch's own Python computes: it divides by the number of elements, which may be none."""


def _gradient_of_nothing(grad: torch.Tensor, x: torch.Tensor, *_: object) -> Any:
    # PyTorch then records the op
    return NotImplemented if x.numel() else torch.zeros_like(x)


@functools.cache
def _rules() -> dict[OpOverload, Callable[..., Any]]:
    """PyTorch's rules for ops that are not composed of others.

    Its whole table has those as well: it looks through every namespace of ops for them, 0.2 s, and finds what `OpPolicy`
    asks each op for.
    """
    return {op: rule for op, rule in _core_aten_decompositions_post_autograd().items() if isinstance(op, OpOverload)}


def _is_internal(op: OpOverload) -> bool:
    """Questions about shapes and other bookkeeping of the tracer; they leave nothing in the graph."""
    return op.namespace in ("prim", "profiler", "streams") or op in _BOOKKEEPING


_BOOKKEEPING = {
    torch.ops.aten.size.default,
    torch.ops.aten.sym_size.default,
    torch.ops.aten.stride.default,
    torch.ops.aten.sym_stride.default,
    torch.ops.aten.sym_storage_offset.default,
    torch.ops.aten.sym_numel.default,
    torch.ops.aten.is_contiguous.default,
    torch.ops.aten.is_contiguous.memory_format,
    torch.ops.aten.is_strides_like_format.default,
    torch.ops.aten.is_non_overlapping_and_dense.default,
    torch.ops.aten.is_same_size.default,
    torch.ops.aten._has_same_storage_numel.default,
    torch.ops.aten._local_scalar_dense.default,
}


def _first(rule: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def decide(*args: Any, **kwargs: Any) -> Any:
        result = rule(*args, **kwargs)
        return other(*args, **kwargs) if result is NotImplemented else result

    return decide


def _conditional(op: OpOverload, condition: Callable[..., str | None]) -> Callable[..., Any]:
    def decide(*args: Any, **kwargs: Any) -> Any:
        reason = condition(*args, **kwargs)
        # PyTorch then records the op; called here, it would come back to this rule without end
        return NotImplemented if reason is None else _refusal(op, reason)(*args, **kwargs)

    return decide


def _refusal(op: OpOverload, reason: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOpError(
            f"The op {op} cannot run inside the compiled step: {reason}.\n"
            f"  used at {user_line_of()}\n"
            f"  in module {current_module()}\n"
            "Options: write the computation with other ops; teach systolic the op with "
            f"systolic.register_lowering(torch.ops.{op}, jax_function); wrap a JAX function with systolic.jax_op; "
            f"or run in eager PyTorch with Trainer(compile=False).{see(Entry.UNSUPPORTED_OP)}"
        )

    return refuse
