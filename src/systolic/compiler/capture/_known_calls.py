"""Calls of ops like those that were traced before, recorded without PyTorch's own way through its modes.

Tracing an op takes PyTorch's tracer a millisecond, nine tenths of it for finding out what the call has in common with the one
before: that no rule splits it, what shape its result has. A model has few different ops and shapes and many calls of them.
For operands of the same shapes, dtypes and strides an op gives the same again: the second call makes its node and its
results straight away. Whatever is out of the ordinary (a size that is a symbol, a constant, an op that writes) goes PyTorch's
way, as the first call of each kind does.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import (
    COMPOSITE,
    CPU_KERNEL,
    FakeTensor,
    OpOverload,
    _get_current_dispatch_mode_stack,
    has_kernel,
    no_torch_dispatch,
    no_torch_functions,
    proxy_tensor,
)
from .._capture_thread import replaced
from ..lowering import BACKWARD, LINE, RECOMPUTED, SCOPE
from ._op_policy import OpPolicy

_MOST = 2**14
"""Kinds of calls that are kept, of all traces."""

_PLAIN = frozenset({int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})

_CPU = torch.device("cpu")

# PyTorch's own, which a trace replaces for user code
_set, _empty, _empty_strided = torch.Tensor.set_, torch.empty, torch.empty_strided

_META = frozenset({"val", "tensor_meta", "original_aten", SCOPE, LINE, BACKWARD, RECOMPUTED})
"""Entries of nodes: by the tracer, of their results, and by `tracking_modules`, of where they stand."""

_UNUSUAL = (
    torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view,
)  # fmt: skip


@dataclass(frozen=True)
class _Result:
    """A tensor that an op gives.

    Attributes:
        view_of: the number of the operand whose memory it looks at; None for memory of its own.
        about: what PyTorch's tracer writes about it into the node.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    view_of: int | None
    about: Any


@dataclass(frozen=True)
class _Known:
    """Results of calls of one kind: a tensor, or several of them and `None`s in a tuple or list."""

    results: tuple[_Result | None, ...]
    structure: type[tuple[Any, ...]] | type[list[Any]] | None


_KNOWN: dict[Hashable, _Known | None] = {}


class _UnusualError(Exception):
    """A call that goes PyTorch's way."""


@contextlib.contextmanager
def recording_known_calls() -> Iterator[None]:
    """Inside the block, PyTorch's tracer looks calls of ops up among those that it has traced."""
    plain: dict[object, bool] = {}
    original = proxy_tensor.proxy_call

    def proxy_call(mode: Any, op: Any, pre_dispatch: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        usual = plain.get(op)
        if usual is None:
            usual = plain[op] = _is_usual(op, mode.decomposition_table)
        if not usual or pre_dispatch:
            return original(mode, op, pre_dispatch, args, kwargs)
        with no_torch_functions():
            call = _Call(mode.tracer)
            try:
                kind = call.kind(op, args, kwargs)
            except _UnusualError:
                kind = None
            known = None if kind is None else _KNOWN.get(kind)
            if known is not None:
                return call.record(op, args, kwargs, known)
        if kind is None or kind in _KNOWN:
            return original(mode, op, pre_dispatch, args, kwargs)
        last = next(reversed(mode.tracer.graph.nodes))
        given = original(mode, op, pre_dispatch, args, kwargs)
        with no_torch_functions():
            if len(_KNOWN) >= _MOST:
                _KNOWN.clear()
            _KNOWN[kind] = call.learnt(op, args, kwargs, given, last)
        return given

    with replaced(proxy_tensor, "proxy_call", proxy_call):
        yield


def _is_usual(op: object, rules: object) -> bool:
    """Whether an op is recorded as it is, and gives for equal operands what it gave before."""
    if not isinstance(op, OpOverload) or not isinstance(rules, OpPolicy) or not rules.looks_at_kinds_alone(op):
        return False
    if any(tag in op.tags for tag in _UNUSUAL):
        return False
    taken_apart = has_kernel(op.name(), COMPOSITE) or COMPOSITE in op.py_kernels
    return op.namespace == "aten" and not op._schema.is_mutable and (has_kernel(op.name(), CPU_KERNEL) or not taken_apart)


class _Call:
    """One call of an op.

    Args:
        tracer: of the trace.
    """

    def __init__(self, tracer: Any) -> None:
        self._tracer = tracer
        self._tensors: list[FakeTensor] = []
        self._proxies: list[fx.Proxy] = []

    def kind(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """All that the results' shapes depend on.

        Raises:
            _UnusualError: they may depend on more.
        """
        named = tuple((name, self._about(value)) for name, value in kwargs.items()) if kwargs else ()
        kind = op, tuple(map(self._about, args)), named, torch.get_default_dtype(), torch.is_inference_mode_enabled()
        modes = {tensor.fake_mode for tensor in self._tensors}
        if len(modes) != 1 or _get_current_dispatch_mode_stack() != [*modes]:
            raise _UnusualError
        return kind

    def _about(self, value: Any) -> Hashable:
        cls = type(value)
        if cls is FakeTensor:
            return self._about_tensor(value)
        if cls in _PLAIN:
            return cls, value
        if isinstance(value, list | tuple):
            return cls, tuple(map(self._about, value))
        raise _UnusualError

    def _about_tensor(self, tensor: FakeTensor) -> Hashable:
        known = self._tracer.tensor_tracker.get(tensor)
        if known is None or known.constant is not None or tensor.constant is not None or tensor._has_symbolic_sizes_strides:
            raise _UnusualError
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            raise _UnusualError
        self._tensors.append(tensor)
        self._proxies.append(known.proxy)
        size = tensor.untyped_storage().nbytes()
        place = tensor.storage_offset(), tensor.fake_device, tensor.requires_grad
        return tuple(tensor.shape), tensor.stride(), tensor.dtype, size, *place

    def learnt(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any, last: fx.Node) -> _Known | None:
        """The results of a call, for those to come; None where they say nothing of these.

        Args:
            op: what was called.
            args: with these arguments.
            kwargs: and these.
            given: its result.
            last: the last node before it.
        """
        node, proxies = last.next, iter([proxy.node for proxy in self._proxies])
        named = {name: _with(proxies, value) for name, value in kwargs.items()}
        if node.op != "call_function" or node.target is not op or node.kwargs != named or node.args != _with(proxies, args):
            return None
        if isinstance(given, FakeTensor):
            result = self._result(given, node)
            return None if result is None or node.next.op != "root" else _Known((result,), None)
        if type(given) not in (tuple, list):
            return None
        results: list[_Result | None] = []
        for one in given:
            node = node.next
            if node.op == "root" or node.target is not operator.getitem:
                return None
            result = self._result(one, node) if isinstance(one, FakeTensor) else None
            if result is None and one is not None:
                return None
            results.append(result)
        return _Known(tuple(results), type(given)) if node.next.op == "root" else None

    def _result(self, tensor: FakeTensor, node: fx.Node) -> _Result | None:
        """A result for other calls; None where it is one of the operands, or like nothing that is made here."""
        if any(tensor is operand for operand in self._tensors) or tensor._has_symbolic_sizes_strides or tensor.requires_grad:
            return None
        if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg() or tensor.constant is not None:
            return None
        memory = tensor.untyped_storage()._cdata
        sources = [at for at, operand in enumerate(self._tensors) if operand.untyped_storage()._cdata == memory]
        shape, strides, offset = tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
        if tensor.fake_device != _CPU or set(node.meta) - _META:
            return None
        # of memory with holes PyTorch itself does not say the same each time
        if not sources and (offset or tensor.untyped_storage().nbytes() != tensor.numel() * tensor.dtype.itemsize):
            return None
        return _Result(shape, strides, offset, tensor.dtype, sources[0] if sources else None, node.meta.get("tensor_meta"))

    def record(self, op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], known: _Known) -> Any:
        """Make the nodes and the results of a call of a known kind."""
        proxies = iter(self._proxies)
        # in the order in which `kind` met them: keywords first
        named = {name: _with(proxies, value) for name, value in kwargs.items()}
        given = _with(proxies, args)
        name = self._tracer.graph._target_to_str(op.overloadpacket.__name__)
        proxy = self._tracer.create_proxy("call_function", op, given, named, name=name)
        if known.structure is None:
            return self._made(known.results[0], proxy)
        parts = [proxy[at] for at in range(len(known.results))]
        results = known.structure(map(self._made, known.results, parts))
        proxy.node.meta["val"] = known.structure(part.node.meta.get("val") for part in parts)
        return results

    def _made(self, result: _Result | None, proxy: fx.Proxy) -> FakeTensor | None:
        """A result, of which the tracer knows the node."""
        if result is None:
            return None
        with no_torch_dispatch():
            if result.view_of is None:
                memory = _empty_strided(result.shape, result.strides, dtype=result.dtype, device="meta")
            else:
                memory = _empty(0, dtype=result.dtype, device="meta")
                _set(memory, self._tensors[result.view_of].untyped_storage(), result.offset, result.shape, result.strides)
            # two with the same memory: what happens to the one is not seen in the node
            tensor, value = (FakeTensor(self._tensors[0].fake_mode, memory, _CPU) for _ in range(2))
        self._tracer.tensor_tracker[tensor] = proxy_tensor._ProxyTensor(proxy, None)
        proxy.node.meta["val"] = value
        proxy.node.meta["tensor_meta"] = result.about
        return tensor


def _with(others: Iterator[Any], value: Any) -> Any:
    """An argument with other things in place of its tensors, in their order."""
    if isinstance(value, FakeTensor):
        return next(others)
    if isinstance(value, list | tuple):
        return type(value)(_with(others, one) for one in value)
    return value
