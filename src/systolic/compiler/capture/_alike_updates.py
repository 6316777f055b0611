"""Updates of PyTorch's optimizers, traced for one parameter of each kind and copied in the graph for the others.

PyTorch's optimizers go through their parameters in a loop, and an op takes about a millisecond to trace: of the trace of GPT-2
with its 148 parameters, 40% was AdamW's loop. Where an update does nothing but compute each number from those at the same
place, that of another parameter is the same ops on other tensors, and its nodes can be made without PyTorch.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import (
    FunctionalTensor,
    OpOverload,
    _disable_current_modes,
    apply_pending_writes,
    fake_tensor,
    functional_value,
    get_proxy_mode,
    is_tagged_pointwise,
    no_torch_functions,
    single_tensor_updates,
    take_value,
    track_tensor,
)
from .._capture_thread import replaced
from ..lowering import UPDATE

# of each number by itself, too, though PyTorch does not say so of them
_ALSO_POINTWISE = frozenset({torch.ops.aten.copy.default, torch.ops.aten.scalar_tensor.default})

_numbers = itertools.count()

Row = list[torch.Tensor | None]
"""Arguments of an update that belong to one parameter: the parameter, its gradient, and what the optimizer keeps of it."""


@contextlib.contextmanager
def copying_alike_updates() -> Iterator[None]:
    """Inside the block, PyTorch's optimizers trace an update once for all parameters that differ in their shape alone."""
    with contextlib.ExitStack() as stack:
        for module, name in single_tensor_updates():
            stack.enter_context(replaced(module, name, _one_of_each_kind(vars(module)[name])))
        yield


def _one_of_each_kind(update: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(update)
    def updates(params: list[torch.Tensor], *others: Any, **options: Any) -> None:
        mode, given = get_proxy_mode(), (params, *others)
        if mode is None or any(isinstance(option, list) for option in options.values()):
            update(*given, **options)
            return
        tracer = mode.tracer
        columns = [column for column in given if isinstance(column, list) and len(column) == len(params)]
        kinds = _Kinds(tracer, columns)
        known: dict[Hashable, _Template | None] = {}
        for number in range(len(params)):
            row = [column[number] for column in columns]
            with no_torch_functions():
                kind = kinds.of(row)
                template = known.get(kind)
                if template is not None:
                    template.copy_for(row, tracer)
                    continue
                sources = [_node(value, tracer) for value in row]
            last = next(reversed(tracer.graph.nodes))
            alone = {id(column): [column[number]] for column in columns}
            update(*[alone.get(id(argument), argument) for argument in given], **options)
            for column in columns:  # where there was no momentum yet, there is one now
                column[number] = alone[id(column)][0]
            known[kind] = None
            if kind is not None and all(alone[id(c)][0] is value for c, value in zip(columns, row, strict=True)):
                with no_torch_functions():
                    known[kind] = _template(last, sources, row, tracer)

    return updates


class _Kinds:
    """Kinds of parameters, of which all have updates that are alike.

    Args:
        tracer: of the trace.
        columns: lists with an entry for each parameter.
    """

    def __init__(self, tracer: Any, columns: Sequence[Sequence[torch.Tensor | None]]) -> None:
        self._tracer = tracer
        self._memories = Counter(_memory(value) for column in columns for value in column if value is not None)

    def of(self, row: Row) -> Hashable:
        """All but the shape that an update may depend on; None for tensors that say nothing of others."""
        nodes = [_node(value, self._tracer) for value in row]
        if any((value is None) is not (node is None) for value, node in zip(row, nodes, strict=True)):
            return None
        if any(value is not None and self._memories[_memory(value)] != 1 for value in row):
            return None  # a write to one would be seen in the other
        if len({node for node in nodes if node is not None}) != sum(node is not None for node in nodes):
            return None
        values = [None if node is None else node.meta["val"] for node in nodes]
        parameter = values[0]
        assert parameter is not None, "a row begins with a parameter"
        flags = tuple(value is not None and value.requires_grad for value in row)
        return flags, tuple(None if value is None else self._kind(value, parameter.shape) for value in values)

    def _kind(self, value: torch.Tensor, shape: torch.Size) -> Hashable:
        dense = value.is_contiguous() and value.untyped_storage().nbytes() == value.numel() * value.element_size()
        size = "parameter's" if value.shape == shape and dense else (tuple(value.shape), value.stride())
        return value.dtype, value.device, min(value.dim(), 1), size


@dataclass(frozen=True)
class _Template:
    """The nodes of one parameter's update.

    Attributes:
        nodes: in their order.
        sources: the nodes of what the update was given.
        results: of each of these: the node that has its value afterwards; None where it was not written to.
        shape: of the parameter.
    """

    nodes: list[fx.Node]
    sources: list[fx.Node | None]
    results: list[fx.Node | None]
    shape: torch.Size

    def copy_for(self, row: Row, tracer: Any) -> None:
        """Let the same happen to other tensors."""
        current = [_node(value, tracer) for value in row]
        known = {old: new for old, new in zip(self.sources, current, strict=True) if old is not None and new is not None}
        parameter = current[0]
        assert parameter is not None, "a row begins with a parameter"
        shape, mode = parameter.meta["val"].shape, parameter.meta["val"].fake_mode
        with _disable_current_modes():
            kinds = {value.dtype for value in (node.meta["val"] for node in self.nodes) if value.shape == self.shape}
            values = {} if shape == self.shape else {dtype: fake_tensor(mode, shape, dtype) for dtype in kinds}
            number = next(_numbers)
            for node in self.nodes:
                known[node] = new = tracer.graph.node_copy(node, lambda source: known.get(source, source))
                new.meta[UPDATE] = number
                value = node.meta["val"]
                if value.shape == self.shape and values:
                    new.meta.pop("tensor_meta", None)
                    new.meta["val"] = values[value.dtype]
            fresh = [None if result is None else _traced(known[result], mode, tracer) for result in self.results]
        for tensor, value in zip(row, fresh, strict=True):
            if value is not None:
                assert isinstance(tensor, FunctionalTensor), "what was written to is traced"
                take_value(tensor, value)


def _traced(node: fx.Node, mode: Any, tracer: Any) -> torch.Tensor:
    """A tensor that stands for a node."""
    value = node.meta["val"]
    fresh = fake_tensor(mode, value.shape, value.dtype)
    track_tensor(fresh, fx.Proxy(node, tracer), constant=None, tracer=tracer)
    return fresh


def _template(last: fx.Node, sources: list[fx.Node | None], row: Row, tracer: Any) -> _Template | None:
    """The nodes traced since `last`; None where another parameter's update may be other ops."""
    made: list[fx.Node] = []
    while last.next.op != "root":
        last = last.next
        made.append(last)
    assert sources[0] is not None, "a row begins with a parameter"
    shape = sources[0].meta["val"].shape
    nodes = [node for node in made if not isinstance(node.meta.get("val"), torch.SymInt | torch.SymFloat)]
    if not all(_is_pointwise(node, shape) for node in nodes):
        return None
    # numbers are the same for all (`1 - lr * weight_decay`), unless they are values of tensors
    own = {*nodes, *sources}
    if any(source in own for node in made if node not in own for source in node.all_input_nodes):
        return None
    after = [_node(value, tracer) for value in row]
    results = [new if new is not old else None for old, new in zip(sources, after, strict=True)]
    return _Template(nodes, sources, results, shape)


def _is_pointwise(node: fx.Node, shape: torch.Size) -> bool:
    """Whether an op gives a tensor like the parameter, or a single number, from tensors at the same places."""
    target, value = node.target, node.meta.get("val")
    if not isinstance(target, OpOverload) or not isinstance(value, torch.Tensor) or not value.is_contiguous():
        return False
    return (target in _ALSO_POINTWISE or is_tagged_pointwise(target)) and value.shape in (shape, torch.Size())


def _node(value: torch.Tensor | None, tracer: Any) -> fx.Node | None:
    """The node that has a tensor's value now; None for one that is not traced."""
    if not isinstance(value, FunctionalTensor):
        return None
    apply_pending_writes(value)
    known = tracer.tensor_tracker.get(functional_value(value))
    return None if known is None else known.proxy.node


def _memory(value: torch.Tensor) -> int:
    return value.elem.untyped_storage()._cdata if isinstance(value, FunctionalTensor) else id(value)
