"""Compute values of the forward pass once more where the backward pass needs them, in place of keeping them.

The graph is divided into segments: repeated blocks of the model, and what lies between them. What a later segment uses is
kept. Of the rest, what the backward pass uses is computed again from what is kept, for a whole segment at once, when
the gradient of the segment's results arrives.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

import torch
from torch import fx

from ...utilities._torch_internals import OpOverload
from ..kernels import NO_CALL, forward_call
from ..lowering import BACKWARD, OPTIMIZER, RECOMPUTED, SCOPE, is_backward
from ._blocks import blocks_of
from ._held_back import hold_back, is_gradient, of_state_alone
from ._rewrites import arguments_of

aten = torch.ops.aten

_JAX_CALL = torch.ops.systolic.jax_call.default

DOTS: frozenset[OpOverload] = frozenset(
    {
        aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default, aten.mv.default, aten.dot.default,
        aten.addmv.default, aten.convolution.default,
    }
)  # fmt: skip
"""Ops whose results `remat="dots"` keeps.

Attention and recurrent layers, which are calls of JAX functions, are not among them: their gradients need far more than their
results, the scores of all pairs.
"""


@dataclass(frozen=True)
class Remat:
    """Choice of what the backward pass computes once more.

    Attributes:
        saves: whether the results of an op are kept; not asked for what a later segment uses, which always is.
        blocks_only: leave alone what lies outside of repeated blocks.
    """

    saves: Callable[[OpOverload], bool]
    blocks_only: bool = False


@dataclass(frozen=True)
class _Segment:
    nodes: list[fx.Node]
    is_block: bool


def rematerialise(graph: fx.Graph, state: Set[fx.Node], remat: Remat) -> int | None:
    """Have the backward pass compute once more what it would find kept.

    Args:
        graph: functional ops, with the scope of each; is changed.
        state: placeholders of the state.
        remat: what is kept.

    Returns:
        How many segments are computed once more; None where `remat` is about blocks, and the graph has none.
    """
    segments = _segments(graph)
    if remat.blocks_only:
        segments = [segment for segment in segments if segment.is_block]
        if not segments:
            return None
    places = {node: place for place, node in enumerate(graph.nodes)}
    calls, always = _Calls(graph), of_state_alone(graph, state)
    work = [_Again(graph, segment, always, remat, calls) for segment in segments]
    return sum([again.insert(number, places) for number, again in enumerate(work)])


def has_backward(graph: fx.Graph) -> bool:
    """Whether a graph computes gradients."""
    return any(is_gradient(node) for node in graph.nodes)


def _segments(graph: fx.Graph) -> list[_Segment]:
    """Runs of forward ops that belong to the same block, or to none, in the order of the graph."""
    forward = [node for node in graph.nodes if _is_forward(node)]
    blocks = blocks_of({node.meta[SCOPE] for node in forward if node.meta.get(SCOPE)})
    found: list[_Segment] = []
    last: str | None = None
    for node in graph.nodes:
        if not _is_forward(node):
            # a run ends where a backward pass begins: the next step of the same block is another one
            last = last if node.op == "placeholder" or not is_backward(node) else None
            continue
        block = blocks.get(node.meta.get(SCOPE, ""), "")
        if block != last:
            found.append(_Segment([], bool(block)))
        last = block
        found[-1].nodes.append(node)
    return found


def _is_forward(node: fx.Node) -> bool:
    return node.op == "call_function" and node.meta.get(SCOPE) != OPTIMIZER and not is_backward(node)


class _Calls:
    """Numbers by which the gradient of a JAX function finds what the function's own call has left for it."""

    def __init__(self, graph: fx.Graph) -> None:
        self._gradients: dict[tuple[int, int], list[fx.Node]] = {}
        numbers = [NO_CALL]
        for node in graph.nodes:
            if node.target is _JAX_CALL:
                numbers.append(arguments_of(node)[2])
                forward = forward_call(node)
                if forward is not None:
                    self._gradients.setdefault(forward, []).append(node)
        self._next = max(numbers) + 1

    def gradients_of(self, node: fx.Node) -> list[fx.Node]:
        """The gradients that use what the lowering of a call keeps."""
        return self._gradients.get(arguments_of(node)[1:], []) if node.target is _JAX_CALL else []

    def renumber(self, copy: fx.Node | None, gradients: Sequence[fx.Node]) -> None:
        """Let gradients use what a copy leaves; where there is none they compute everything themselves."""
        if not gradients:
            return
        number = NO_CALL if copy is None else self._next
        self._next += 1
        for node in (*gradients, *([] if copy is None else [copy])):
            node.args = (*node.args[:2], number)


class _Again:
    """One segment, computed once more.

    What it does is decided before any segment is, in the graph as it was.
    """

    def __init__(self, graph: fx.Graph, segment: _Segment, always: Set[fx.Node], remat: Remat, calls: _Calls) -> None:
        self._graph = graph
        self._always = always
        self._calls = calls
        self._copies: dict[fx.Node, fx.Node] = {}
        kept = set(always)
        for node in segment.nodes:
            if _is_saved(node, remat, kept):
                kept.add(node)
        inside = set(segment.nodes)
        border = {node for node in segment.nodes if any(user not in inside and _is_later(user) for user in node.users)}
        self._lost = [node for node in segment.nodes if node not in kept | border]
        self._whole = segment.is_block

    def insert(self, number: int, places: Mapping[fx.Node, int]) -> bool:
        """Put the copies where the backward pass needs them; False where it needs none."""
        first = {node: min(map(places.__getitem__, users)) for node in self._lost if (users := self._users(node))}
        # a block has one gradient, for which it is computed again; elsewhere each value waits for its own
        wanted = sorted(first, key=first.__getitem__)
        for values in [wanted] if self._whole and wanted else [[value] for value in wanted]:
            left = [node for node in self._lost if node not in self._copies]
            user = min((user for value in values for user in self._users(value)), key=places.__getitem__)
            self._insert(list(_needed(left, values)), number, user)
        for node in self._lost:
            self._redirect(node)
        return bool(self._copies)

    def _users(self, node: fx.Node) -> list[fx.Node]:
        """Gradients that need a value; that of a JAX function needs what the function's own call has left, too."""
        return [*_gradient_users(node), *self._calls.gradients_of(node)]

    def _insert(self, nodes: Sequence[fx.Node], number: int, first: fx.Node) -> None:
        if not nodes:  # they are among what an earlier value was computed from
            return
        before, arrived = set(self._copies.values()), _arrived(first, self._always)
        with self._graph.inserting_before(first):
            for node in nodes:
                copy = self._graph.node_copy(node, lambda source: self._copies.get(source, source))
                copy.meta = node.meta | {BACKWARD: True, RECOMPUTED: number}
                self._copies[node] = copy
        hold_back(self._graph, [self._copies[node] for node in nodes], before | self._always, arrived)

    def _redirect(self, node: fx.Node) -> None:
        """Let the backward pass use the copy of a value; the gradient of a call without one computes everything itself."""
        copy = self._copies.get(node)
        if copy is not None:
            for user in _gradient_users(node):
                user.replace_input_with(node, copy)
        self._calls.renumber(copy, self._calls.gradients_of(node))


def _gradient_users(node: fx.Node) -> list[fx.Node]:
    return [user for user in node.users if not _is_later(user)]


def _is_later(user: fx.Node) -> bool:
    """Whether a user outside of a segment needs a value for something else than gradients."""
    return user.op == "output" or not is_backward(user)


def _is_saved(node: fx.Node, remat: Remat, kept: Set[fx.Node]) -> bool:
    if node.target is operator.getitem:
        return node.all_input_nodes[0] in kept
    # what is no op is arithmetic on numbers
    return not isinstance(node.target, OpOverload) or remat.saves(node.target)


def _needed(lost: Sequence[fx.Node], wanted: Sequence[fx.Node]) -> Iterator[fx.Node]:
    """Ops that have to be computed again for the wanted values, in order."""
    among, found, waiting = set(lost), set[fx.Node](), list(wanted)
    while waiting:
        node = waiting.pop()
        if node in among and node not in found:
            found.add(node)
            waiting += node.all_input_nodes
    return (node for node in lost if node in found)


def _arrived(first: fx.Node, always: Set[fx.Node]) -> list[fx.Node]:
    """The gradients that the first op of a segment's backward pass takes, or the last that was computed before it."""
    taken = [source for source in first.all_input_nodes if is_gradient(source) and source not in always]
    if taken:
        return taken
    node = first.prev
    while node.op != "root" and (not is_gradient(node) or node in always):
        node = node.prev
    return [node] if node.op != "root" else []
