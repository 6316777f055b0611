"""Find parts of a graph that do the same, so that they are lowered once.

A part is what the graph has of one member of a list of modules, forward or backward, or of one parameter's update; it is one
where its nodes follow each other, so that the order of the program stays what it was.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import torch
from torch import fx

from ..lowering import OPTIMIZER, SCOPE, UPDATE, AlikePart, Call, Part, Step
from ._isomorphic import Nodes, is_view, kind, label, put_by, sources_of, taken_by
from ._layer_members import BACKWARD_SCOPE, DEEPEST, member_of

_LEAST = 8
"""Nodes that a part has at least: a call takes the time of one or two."""

_LEAST_SAVED = 32
"""Nodes that need not be lowered, from which on a function and its calls pay."""

_ALSO_VIEWS = (torch.ops.aten._unsafe_view.default, torch.ops.aten.reshape.default)


def with_alike_parts(graph: fx.Graph, apart: Set[fx.Node]) -> list[Step]:
    """The graph's nodes in their order, parts that do the same as calls of one function.

    Args:
        graph: what is lowered.
        apart: nodes that are lowered by themselves.
    """
    return _Finder(graph, apart).steps()


@dataclass(frozen=True)
class _Piece:
    """Nodes that follow each other and belong together.

    Attributes:
        scope: what their scopes begin with.
        nodes: in their order.
        inputs: nodes outside that they take, as they come.
        taken: calls outside whose pullbacks they take, as they come.
        form: equal for pieces that do the same.
    """

    scope: str
    nodes: Nodes
    inputs: dict[fx.Node, int] = field(default_factory=dict)
    taken: dict[Call, int] = field(default_factory=dict)
    form: list[Hashable] = field(default_factory=list)


class _Finder:
    def __init__(self, graph: fx.Graph, apart: Set[fx.Node]) -> None:
        self._nodes = list(graph.nodes)
        self._alone = {node for node in self._nodes if node in apart or not _gives_tensors(node)}
        self._parts: dict[fx.Node, AlikePart] = {}
        self._left: dict[Call, tuple[Part, int]] = {}
        self._labels: dict[fx.Node, Hashable] = {}
        self._takers: dict[Call, list[fx.Node]] = defaultdict(list)
        for node in self._nodes:
            call = taken_by(node)
            if call is not None:
                self._takers[call].append(node)

    def steps(self) -> list[Step]:
        """Everything, in its order."""
        for depth in range(DEEPEST):
            if not self._find(depth):
                break
        steps = dict[Step, None]()
        for node in self._nodes:
            steps[self._parts.get(node) or node] = None
        return list(steps)

    def _find(self, depth: int) -> bool:
        """Make parts of the members of lists at a depth; False where there are no such lists."""
        alike: dict[Hashable, list[_Piece]] = defaultdict(list)
        found = False
        cut = itertools.groupby(self._nodes, lambda node: None if node in self._parts else _place(node, depth))
        for place, nodes in cut:
            found = found or place is not None
            piece = None if place is None else self._piece(place[0], tuple(nodes))
            if piece is not None:
                alike[tuple(piece.form)].append(piece)
        # in the order of the graph: what gradients take was left by a part before them
        for pieces in alike.values():
            self._accept(pieces)
        return found

    def _piece(self, scope: str, nodes: Nodes) -> _Piece | None:
        if len(nodes) < _LEAST or any(node in self._alone for node in nodes):
            return None
        piece = _Piece(scope, nodes)
        places = {node: place for place, node in enumerate(nodes)}
        puts = {put_by(node): place for place, node in enumerate(nodes)}
        for node in nodes:
            sources = [self._source(source, places, piece) for source in sources_of(node)]
            piece.form.append((self._label(node), _scope(node).removeprefix(scope), *sources, _pullback(node, puts, piece)))
        return piece

    def _source(self, source: fx.Node, places: dict[fx.Node, int], piece: _Piece) -> Hashable:
        """How a piece takes a value: by its place, or, from outside, by its number and all that a lowering may ask of it."""
        place = places.get(source)
        return place if place is not None else (piece.inputs.setdefault(source, len(piece.inputs)), _origin(source))

    def _label(self, node: fx.Node) -> Hashable:
        if node not in self._labels:
            self._labels[node] = label(node, None)
        return self._labels[node]

    def _accept(self, pieces: Sequence[_Piece]) -> None:
        """Parts of pieces that are alike, but where they take what has been left in different forms, or by no part."""
        by_givers: dict[Hashable, list[_Piece]] = defaultdict(list)
        for piece in pieces:
            givers = tuple(self._left.get(call) for call in piece.taken)
            if None not in givers:
                by_givers[givers].append(piece)
        for some in by_givers.values():
            if (len(some) - 1) * len(some[0].nodes) >= _LEAST_SAVED:
                self._make(some)

    def _make(self, pieces: Sequence[_Piece]) -> None:
        positions = range(len(pieces[0].nodes))
        results = tuple(at for at in positions if any(_is_used_outside(piece.nodes, at) for piece in pieces))
        puts = [at for at in positions if any(self._is_taken_outside(piece.nodes, at) for piece in pieces)]
        parts = [_part(piece, puts) for piece in pieces]
        for part in parts:
            self._parts |= dict.fromkeys(part.nodes, AlikePart(part, parts[0], results))
            self._left |= {call: (parts[0], number) for number, call in enumerate(part.left)}

    def _is_taken_outside(self, nodes: Nodes, position: int) -> bool:
        call = put_by(nodes[position])
        return call is not None and any(taker not in nodes for taker in self._takers[call])


def _part(piece: _Piece, puts: Sequence[int]) -> Part:
    left = tuple(call for at in puts if (call := put_by(piece.nodes[at])) is not None)
    return Part(piece.nodes, tuple(piece.inputs), tuple(piece.taken), left, piece.scope)


def _pullback(node: fx.Node, puts: Mapping[Call | None, int], piece: _Piece) -> Hashable:
    """The way a node takes a pullback: by the place of who left it, or, from outside, by its number; None if it takes none."""
    call = taken_by(node)
    if call is None:
        return None
    return ("inside", puts[call]) if call in puts else piece.taken.setdefault(call, len(piece.taken))


def _place(node: fx.Node, depth: int) -> tuple[str, Hashable] | None:
    """The beginning of a node's scope, up to the `depth`-th number of a member, and what else tells it from other parts."""
    if node.op != "call_function":
        return None
    scope = _scope(node)
    if scope == OPTIMIZER:
        update = node.meta.get(UPDATE)
        return None if update is None else (scope, update)
    member = member_of(node, depth)
    if member is None:
        return None
    before = BACKWARD_SCOPE if scope.startswith(BACKWARD_SCOPE) else ""
    return f"{before}{member[0]}.{member[1]}", None


def _scope(node: fx.Node) -> str:
    return node.meta.get(SCOPE) or ""


def _gives_tensors(node: fx.Node) -> bool:
    """Whether what an op gives is an argument or a result of a JAX function."""
    value = node.meta.get("val")
    return all(isinstance(one, torch.Tensor) or one is None for one in (value if isinstance(value, list | tuple) else [value]))


def _is_used_outside(nodes: Nodes, position: int) -> bool:
    return any(user not in nodes for user in nodes[position].users)


def _origin(node: fx.Node) -> Hashable:
    """Facts that the lowering of an op may ask for about one of its sources: its shape, and what it is a view of."""
    return tuple((each.op, kind(each), each.target if _is_view(each) else None) for each in _with_viewed(node))


def _with_viewed(node: fx.Node) -> Iterator[fx.Node]:
    yield node
    while _is_view(node):
        node = node.all_input_nodes[0]
        yield node


def _is_view(node: fx.Node) -> bool:
    return is_view(node) or node.target in _ALSO_VIEWS
