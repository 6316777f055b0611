"""Ops that users and packages make by `torch.library.custom_op`: what their functions do is part of the step.

The function gets tensors of the trace. What it computes by NumPy is computed by the program, and derivatives are those that the
op has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...utilities._torch_internals import OPDEFS, OpOverload, dispatch_functionalize
from .._errors import UnsupportedOpError, user_line_of


def function_of_custom_op(op: OpOverload) -> Callable[..., Any] | None:
    """The function that an op calls on a CPU; None for ops that were made otherwise, and for those of other devices alone."""
    definition = OPDEFS.get(op.name())
    if definition is None:
        return None
    functions = definition._backend_fns
    return functions.get("cpu", functions.get(None))


def rule_for_custom_op(op: OpOverload) -> Callable[..., Any] | None:
    """The same for the tracer, which is asked where writes have become values: those of the function are followed anew."""
    function = function_of_custom_op(op)
    return None if function is None else dispatch_functionalize(function)


def called_with_writes(mode: Any, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an op that writes to its arguments.

    PyTorch would make it a node with copies before and after, for a compiler that calls the op itself.

    Raises:
        UnsupportedOpError: it is no op of Python's.
    """
    function = function_of_custom_op(op) if isinstance(op, OpOverload) else None
    if function is None:
        raise UnsupportedOpError(
            f"The op {op} cannot run inside the compiled step: it writes to its arguments, and systolic knows no function of "
            f"Python's for it.\n  called at {user_line_of()}\nGive it one for the CPU by `register_kernel`, in ops of PyTorch."
        )
    with mode:
        return function(*args, **kwargs)
