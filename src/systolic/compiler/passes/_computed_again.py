"""Cheap values of a forward loop that a backward loop computes again, in place of having them stacked for every layer.

In a program without loops XLA fuses such values into whatever uses them. Between two loops everything goes through memory.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..lowering import LayerLoop
from ._isomorphic import Alike, Nodes
from ._rewrites import VIEWS, copy_of

aten = torch.ops.aten

Place = tuple[LayerLoop, int, int]
"""A node's loop, its layer and its position there."""

_CHEAP = frozenset(
    {
        *VIEWS, aten.clone.default, aten._to_copy.default, aten.bernoulli.p, aten.empty.memory_format,
        torch.ops.systolic.next_key.default,
    }
)  # fmt: skip


def with_masks_by_shape(graph: fx.Graph) -> fx.Graph:
    """A copy of a graph in which dropout's masks depend on no value of which they take the shape only."""
    copy = copy_of(graph)
    for node in list(copy.nodes):
        if node.target is aten.empty_like.default and all(user.target is aten.bernoulli.p for user in node.users):
            value = node.meta["val"]
            with copy.inserting_before(node):
                plain = copy.call_function(aten.empty.memory_format, (list(value.shape),), {"dtype": value.dtype})
            plain.meta = dict(node.meta)
            node.replace_all_uses_with(plain)
            copy.erase_node(node)
    return copy


def computing_again(found: Alike, places: Mapping[fx.Node, Place]) -> list[Nodes]:
    """The parts of a backward pass, with what they compute again in front.

    Args:
        found: the parts.
        places: of nodes in forward loops.
    """
    wanted: dict[tuple[LayerLoop, tuple[int, ...]], set[int]] = {}
    for nodes in found.inputs:
        known = [places[node] for node in nodes if node in places]
        if len(known) == len(nodes) and len({(loop, position) for loop, _, position in known}) == 1:
            loop, _, position = known[0]
            wanted.setdefault((loop, tuple(layer for _, layer, _ in known)), set()).add(position)
    parts = list(found.parts)
    for (loop, layers), positions in wanted.items():
        again = sorted(_positions(loop, positions))
        for number, layer in enumerate(layers):
            parts[number] = tuple(loop.layers[layer][position] for position in again) + parts[number]
    return parts


def _positions(loop: LayerLoop, wanted: set[int]) -> set[int]:
    """Positions of nodes that are computed again: cheap ones, of what is handed out anyway or of something smaller."""
    nodes = loop.layers[loop.model]
    inside = {node: position for position, node in enumerate(nodes)}
    from_before = {one.source for one in loop.carried}
    handed, again = {position for position in wanted if not _is_cheap(nodes[position])}, set[int]()
    for position in sorted(wanted - handed):
        path, needed = _path(position, nodes, inside, handed)
        taken = any(source in from_before for at in path for source in nodes[at].all_input_nodes)
        # autocast's wide copy of a product, say: the product has half the bytes
        if not taken and sum(_bytes(nodes[at]) for at in needed) < _bytes(nodes[position]):
            again |= path
            handed |= needed
        else:
            handed.add(position)
    return again


def _path(
    position: int, nodes: Sequence[fx.Node], inside: Mapping[fx.Node, int], handed: set[int]
) -> tuple[set[int], set[int]]:
    """The cheap nodes that a value is computed from, itself among them; and what else they need, but for what is handed out."""
    found, needed, waiting = set[int](), set[int](), [position]
    while waiting:
        at = waiting.pop()
        if at in found or at in handed:
            continue
        if _is_cheap(nodes[at]):
            found.add(at)
            waiting += [inside[source] for source in nodes[at].all_input_nodes if source in inside]
        else:
            needed.add(at)
    return found, needed


def _bytes(node: fx.Node) -> float:
    """Of a value; of one that is several, as many as there are numbers: it is left where it is."""
    value = node.meta.get("val")
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else math.inf


def _is_cheap(node: fx.Node) -> bool:
    target: Any = node.target
    if target is operator.getitem:
        return _is_cheap(node.all_input_nodes[0])
    return isinstance(target, OpOverload) and (target in _CHEAP or target.is_view or torch.Tag.pointwise in target.tags)
