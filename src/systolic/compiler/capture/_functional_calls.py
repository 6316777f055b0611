"""Calls that write nothing, without PyTorch's own way through the mode that turns writes into values.

For every call that mode asks in Python whether it splits the op, writes, has effects; flattens its arguments and its results
four times; and asks the tracer for the node of every operand. For a call that only computes, of tensors that nobody has
written to, all of it comes down to: take the values out, call the op, put the results in. Two thirds of the calls of a step
are such, or views of a few kinds, and most others ask for a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import torch

from ...utilities._torch_internals import (
    COMPOSITE,
    FakeTensor,
    FunctionalTensor,
    FunctionalTensorMode,
    OpOverload,
    effects,
    functional_value,
    functional_view,
    has_data_mutation,
    has_kernel,
    to_functional,
)
from .._capture_thread import replaced

_aten = torch.ops.aten
_DEVICE = torch.ops.prim.device.default

# of one tensor, with numbers beside it
_VIEWS = frozenset(
    {
        _aten.alias.default, _aten.detach.default, _aten.expand.default, _aten.permute.default, _aten.select.int,
        _aten.slice.Tensor, _aten.squeeze.dim, _aten.t.default, _aten.transpose.int, _aten.unsqueeze.default,
        _aten.view.default,
    }
)  # fmt: skip

_PLAIN = frozenset(
    {
        int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
        torch.SymInt, torch.SymFloat,
    }
)  # fmt: skip


class _Kind(Enum):
    COMPUTES = 1
    VIEW = 2
    OTHER = 3


class _UnusualError(Exception):
    """A call that goes PyTorch's way."""


@contextlib.contextmanager
def calling_straight() -> Iterator[None]:
    """Inside the block, calls that write nothing are made straight away."""
    kinds: dict[object, _Kind] = {}
    original: Callable[..., Any] = FunctionalTensorMode.__torch_dispatch__

    def dispatch(mode: Any, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        if op is _DEVICE and (device := _device_of(args[0])) is not None:
            return device
        kind = kinds.get(op)
        if kind is None:
            kind = kinds[op] = _kind_of(op)
        if kind is _Kind.OTHER or mode.export or mode.pre_dispatch:
            return original(mode, op, types, args, kwargs)
        try:
            if kind is _Kind.VIEW:
                return _view(mode, op, args, kwargs)
            values = [_value(argument) for argument in args]
            named = {name: _value(argument) for name, argument in kwargs.items()} if kwargs else {}
        except _UnusualError:
            return original(mode, op, types, args, kwargs)
        return _wrapped(op(*values, **named), mode)

    with replaced(FunctionalTensorMode, "__torch_dispatch__", dispatch):
        yield


def _kind_of(op: object) -> _Kind:
    if op in _VIEWS:
        return _Kind.VIEW
    if (
        not isinstance(op, OpOverload)
        or op.namespace != "aten"
        or op in FunctionalTensor.metadata_fns
        or effects.has_effects(op)
    ):
        return _Kind.OTHER
    if has_kernel(op.name(), COMPOSITE) or COMPOSITE in op.py_kernels or op is _aten._local_scalar_dense.default:
        return _Kind.OTHER
    shares = any(one.alias_info is not None for one in (*op._schema.arguments, *op._schema.returns))
    return _Kind.OTHER if shares or op._schema.is_mutable else _Kind.COMPUTES


def _device_of(tensor: Any) -> torch.device | None:
    inner = functional_value(tensor) if type(tensor) is FunctionalTensor else tensor
    return inner.fake_device if type(inner) is FakeTensor else None


def _value(argument: Any) -> Any:
    """An argument with the values of functional tensors in their places.

    Raises:
        _UnusualError: it is none that is looked through here, or its value may have to be brought up to date first.
    """
    cls = type(argument)
    if cls is FunctionalTensor:
        if has_data_mutation(argument.elem):
            raise _UnusualError
        return functional_value(argument)
    if cls in _PLAIN:
        return argument
    if cls is list or cls is tuple:
        return cls(map(_value, argument))
    raise _UnusualError


def _view(mode: Any, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> FunctionalTensor:
    tensor, *others = args
    _value(tensor)
    if (
        kwargs
        or type(tensor) is not FunctionalTensor
        or any(type(one) not in _PLAIN and type(one) is not list for one in others)
    ):
        raise _UnusualError
    return functional_view(op, tensor, others, mode)


def _wrapped(result: Any, mode: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return FunctionalTensor(to_functional(result), mode)
    if type(result) in (tuple, list):
        return type(result)(_wrapped(one, mode) for one in result)
    return result
