"""Whether parts of a graph do the same, node for node, and what each of them takes from outside."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..kernels import NO_CALL, forward_call, wanted_of
from ..lowering import LINE, RECOMPUTED, Call, ValuePlacement, is_backward

Nodes = tuple[fx.Node, ...]

_JAX_CALL = torch.ops.systolic.jax_call.default

_BY_STRIDES = (
    torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default, torch.ops.aten.as_strided_scatter.default,
)  # fmt: skip
"""Ops whose lowerings ask how their operands lay in PyTorch's memory; arrays have no strides."""


@dataclass(frozen=True)
class Alike:
    """Parts of a graph that do the same.

    Attributes:
        parts: their nodes; those in one position do the same.
        inputs: what they take from outside, each by part.
        calls: calls of JAX functions outside whose pullbacks they take, by part.
    """

    parts: tuple[Nodes, ...]
    inputs: tuple[Nodes, ...]
    calls: tuple[tuple[Call, ...], ...]


def alike(parts: Sequence[Nodes], placement: ValuePlacement | None) -> Alike | None:
    """Compare parts of a graph; None where they differ in an op, an argument, a shape, a dtype, or where something lies."""
    if len({len(nodes) for nodes in parts}) != 1:
        return None
    places = [{node: place for place, node in enumerate(nodes)} for nodes in parts]
    puts = [{put_by(node): place for place, node in enumerate(nodes)} for nodes in parts]
    inputs, calls = dict[Nodes, None](), dict[tuple[Call, ...], None]()
    for nodes in zip(*parts, strict=True):
        if len({label(node, placement) for node in nodes}) != 1:
            return None
        for sources in zip(*[sources_of(node) for node in nodes], strict=True):
            inside = {place.get(source) for place, source in zip(places, sources, strict=True)}
            if len(inside) != 1:
                return None
            if inside == {None}:
                inputs[sources] = None
        taken = [call for node in nodes if (call := taken_by(node)) is not None]
        if taken:
            inside = {put.get(call) for put, call in zip(puts, taken, strict=True)}
            if len(inside) != 1:
                return None
            if inside == {None}:
                calls[tuple(taken)] = None
    return Alike(tuple(parts), tuple(inputs), tuple(calls))


def form(nodes: Nodes, placement: ValuePlacement | None) -> Hashable:
    """A value that is equal for parts which may be alike: that look so without what they take from outside."""
    places: Mapping[fx.Node, int] = {node: place for place, node in enumerate(nodes)}
    return tuple((label(node, placement), tuple(places.get(source) for source in sources_of(node))) for node in nodes)


def label(node: fx.Node, placement: ValuePlacement | None) -> Hashable:
    """All that a lowering may ask about a node, without the values that it takes."""
    arguments: Any = node.args
    if node.target is _JAX_CALL:
        # a call's number says only which gradient is its own
        arguments = *node.args[:2], node.args[2] == NO_CALL
    about = (node.meta.get(LINE), is_backward(node), RECOMPUTED in node.meta, "draw" in node.meta)
    written = str(fx.map_arg((arguments, node.kwargs), lambda source: _HOLE))
    strides = tuple(source.meta["val"].stride() for source in sources_of(node)) if node.target in _BY_STRIDES else ()
    return node.target, written, kind(node), strides, about, lies(node, placement)


def lies(node: fx.Node, placement: ValuePlacement | None) -> Hashable:
    """How a node's value lies on the mesh, and how its users take it."""
    if placement is None:
        return None
    maps = (placement.results, placement.summed, placement.gathered)
    return *(found.get(node) for found in maps), node in placement.split_users, id(placement.lookups.get(node))


def is_view(node: fx.Node) -> bool:
    """Whether an op's result looks at the memory of its first operand."""
    return isinstance(node.target, OpOverload) and node.target.is_view


def kind(node: fx.Node) -> Hashable:
    """Shape and dtype of a value."""
    return _kind(node.meta.get("val"))


def _kind(value: object) -> Hashable:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    return tuple(map(_kind, value)) if isinstance(value, list | tuple) else type(value)


def put_by(node: fx.Node) -> Call | None:
    """The call whose pullback a node leaves."""
    if node.target is not _JAX_CALL or node.args[2] == NO_CALL or not wanted_of(node):
        return None
    function, call = _numbers(node)
    return call, function


def taken_by(node: fx.Node) -> Call | None:
    """The call whose pullback a node takes."""
    if node.target is not _JAX_CALL or wanted_of(node):
        return None
    found = forward_call(node)
    return None if found is None else (found[1], found[0])


def _numbers(node: fx.Node) -> tuple[int, int]:
    arguments: Any = node.args
    return arguments[1], arguments[2]


def sources_of(node: fx.Node) -> Sequence[fx.Node]:
    """The nodes among a node's arguments, once for each time that they stand there."""
    found: list[fx.Node] = []
    _collect((node.args, node.kwargs), found)
    return found


def _collect(argument: object, found: list[fx.Node]) -> None:
    # PyTorch's own walk makes the arguments anew, which takes five times as long
    if isinstance(argument, fx.Node):
        found.append(argument)
    elif isinstance(argument, list | tuple):
        for one in argument:
            _collect(one, found)
    elif isinstance(argument, Mapping):
        for one in argument.values():
            _collect(one, found)
    elif isinstance(argument, slice):
        _collect((argument.start, argument.stop, argument.step), found)


class _Hole:
    """Stands where an argument is a value."""

    def __repr__(self) -> str:
        return "%"


_HOLE: Any = _Hole()
