"""One graph for all sizes that values decide (`x[mask]`), of two graphs of the same step for two of them.

A trace knows how many elements a mask selects for its batch, and every array has that size. Where a second trace differs from
the first in nothing but such sizes, the graph can be written for the largest possible one: arrays are as long as the mask, of
which the first `count` elements mean something, `count` being computed by the program. What follows the other elements through
the graph may be anything. Wherever an op would let one reach an element that counts (a sum, a product over this dimension, an
index), it is put out first, and means are divided by `count`.

Ops are known one by one (`_bounded_rules.py`); with any other op, with a size in the step's results, and where the two traces
differ in something else, there is no such graph, and each size keeps its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

Dims = tuple["Size | None", ...]
"""By dimension of a tensor: the size that values decide; None for one that is always the same."""

RuleOf = Callable[[Any], "Callable[[Writer, fx.Node], None] | None"]


class NotBoundedError(Exception):
    """The graph cannot be written for all sizes."""


@dataclass(eq=False)
class Size:
    """How many elements a mask selects.

    Attributes:
        mask: the mask, in the traced graph.
        bound: how many it can select.
        here: how many it selected in this trace.
        there: how many in the other one.
        count: the number in the written graph.
        outside: which of `bound` elements are none of the first `count`.
    """

    mask: fx.Node
    bound: int
    here: int
    there: int
    count: fx.Node | None = None
    outside: fx.Node | None = None


@dataclass
class Bounded:
    """A graph for all sizes.

    Attributes:
        graph: the graph; inputs and outputs are those of the traced one, in the same order.
        counts: the traced graph's nodes that ask for a size which does not matter any more.
    """

    graph: fx.Graph
    counts: set[fx.Node]


def with_bounded_sizes(graph: fx.Graph, other: fx.Graph, rule_of: RuleOf) -> Bounded | None:
    """The graph for all sizes; None where there is none.

    Args:
        graph: the newest trace.
        other: an earlier one of the same step, for arguments of the same shapes.
        rule_of: by op: how a node that has to do with sizes is written; None where nobody knows.
    """
    pairs = _pairs(graph, other)
    if pairs is None:
        return None
    numbers = _value_numbers(graph)
    sizes = _sizes(pairs, numbers)
    # two that are always equal cannot be told from two that were so twice
    if not sizes or len({(size.here, size.there) for size in sizes.values()}) != len(sizes):
        return None
    writer = Writer(pairs, {node: sizes[key] for node, key in numbers.items() if key in sizes}, rule_of)
    try:
        for node in graph.nodes:
            writer.write(node)
    except NotBoundedError:
        return None
    return Bounded(writer.graph, {node for node in graph.nodes if _counted(node, numbers) in sizes})


def _pairs(graph: fx.Graph, other: fx.Graph) -> dict[fx.Node, fx.Node] | None:
    """Nodes of two graphs that do the same, apart from numbers and shapes; None where the graphs differ."""
    if len(graph.nodes) != len(other.nodes):
        return None
    pairs: dict[fx.Node, fx.Node] = {}
    for node, twin in zip(graph.nodes, other.nodes, strict=True):
        if (node.op, node.op == "call_function" and node.target) != (twin.op, twin.op == "call_function" and twin.target):
            return None
        if [pairs[source] for source in _sources(node)] != list(_sources(twin)):
            return None
        pairs[node] = twin
    return pairs


def _sources(node: fx.Node) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), lambda source: (found.append(source), source)[1])
    return found


def _value_numbers(graph: fx.Graph) -> dict[fx.Node, Hashable]:
    """By node a number that nodes of the same value share: masks that are computed twice are one mask."""
    known: dict[Hashable, int] = {}
    numbers: dict[fx.Node, Hashable] = {}
    for node in graph.nodes:
        if node.target is aten.ne.Scalar and node.args[1] == 0 and _dtype(node.args[0]) is torch.bool:
            numbers[node] = numbers[node.args[0]]
            continue
        repeatable = node.op == "call_function" and torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ())
        arguments = fx.map_arg((node.args, node.kwargs), lambda source: f"%{numbers[source]}")  # type: ignore[arg-type,return-value]
        key = (str(node.target), str(arguments)) if repeatable else node
        numbers[node] = known.setdefault(key, len(known))
    return numbers


def _dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _sizes(pairs: Mapping[fx.Node, fx.Node], numbers: Mapping[fx.Node, Hashable]) -> dict[Hashable, Size]:
    """The sizes that differ between the traces, by their masks' numbers."""
    found: dict[Hashable, Size] = {}
    asked = {_counted(node, numbers) for node in pairs}
    for node, twin in pairs.items():
        if node.target is not aten.nonzero_static.default:
            continue
        here, there = node.kwargs.get("size"), twin.kwargs.get("size")
        mask = node.args[0]
        assert isinstance(mask, fx.Node), "masks are tensors"
        # of no element, and of one, PyTorch does other things: what is broadcast, what is squeezed away, a mean of nothing
        if (
            here != there
            and isinstance(here, int)
            and isinstance(there, int)
            and min(here, there) > 1
            and numbers[mask] in asked
        ):
            found.setdefault(numbers[mask], Size(mask, mask.meta["val"].numel(), here, there))
    return found


def _counted(node: fx.Node, numbers: Mapping[fx.Node, Hashable]) -> Hashable:
    """The number of the mask whose elements a node counts for the host; a value that is no mask's number for any other node."""
    if node.target is aten._local_scalar_dense.default:
        total = node.args[0]
        if isinstance(total, fx.Node) and total.target is aten.sum.default and _dtype(total.args[0]) is torch.bool:
            return numbers[total.args[0]]  # type: ignore[index]
    return node


class Writer:
    """The graph for all sizes, as it is written node by node.

    Args:
        pairs: by node of the traced graph: the same node of the other trace.
        sizes: the sizes, by nodes that are their masks.
        rule_of: by op: how a node that has to do with sizes is written; None where nobody knows.

    Attributes:
        graph: what is written so far.
        nodes: by traced node: the written one.
        dims: by traced node: the dimensions of its tensor, or of each tensor in its list.
    """

    def __init__(
        self,
        pairs: Mapping[fx.Node, fx.Node],
        sizes: Mapping[fx.Node, Size],
        rule_of: RuleOf,
    ) -> None:
        self.graph = fx.Graph()
        self.nodes: dict[fx.Node, fx.Node] = {}
        self.dims: dict[fx.Node, Any] = {}
        self._pairs, self._sizes, self._rule_of = pairs, sizes, rule_of
        self._all = list(dict.fromkeys(sizes.values()))
        self._like: fx.Node | None = None

    def write(self, node: fx.Node) -> None:
        """Write a node: as it is, or by the rule of its op where it has to do with sizes."""
        self._like = node
        twin = self._pairs[node]
        sized = node.target is aten.nonzero_static.default and node.args[0] in self._sizes
        if not sized and not any(map(self._is_sized, _sources(node))) and _same(node, twin):
            self.nodes[node] = self.graph.node_copy(node, self.nodes.__getitem__)
            self.dims[node] = _plain(node.meta.get("val"))
            return
        rule = self._rule_of(node.target)
        if rule is None:
            raise NotBoundedError(f"{node.target}")
        rule(self, node)
        self._check(node, twin)

    def _is_sized(self, node: fx.Node) -> bool:
        dims = self.dims[node]
        return any(size is not None for one in (dims if isinstance(dims, list) else [dims]) for size in one)

    def _check(self, node: fx.Node, twin: fx.Node) -> None:
        """Require that what a rule says of the dimensions is how they differ between the traces."""
        dims = self.dims[node]
        values, others = (list(one) if isinstance(one, list | tuple) else [one] for one in (node.meta["val"], twin.meta["val"]))
        for value, other, of_value in zip(values, others, dims if isinstance(dims, list) else [dims], strict=True):
            if not isinstance(value, torch.Tensor):
                continue
            expected = [
                (n, n) if size is None else (size.here, size.there) for n, size in zip(value.shape, of_value, strict=True)
            ]
            if expected != list(zip(value.shape, other.shape, strict=True)):
                raise NotBoundedError(f"{node.target}: {expected} for {value.shape} and {other.shape}")

    def size(self, node: fx.Node) -> Size | None:
        """The size that a mask's positions have."""
        return self._sizes.get(node)

    def put(self, node: fx.Node, written: fx.Node, dims: Any) -> None:
        """Note what stands for a traced node, with the dimensions of its tensor or tensors."""
        self.nodes[node], self.dims[node] = written, dims

    def call(self, target: Any, *args: Any, dims: Any, val: Any = None, **kwargs: Any) -> fx.Node:
        """Write a call for the traced node at hand; its value is `val`'s, or that node's, in the shape that `dims` says."""
        assert self._like is not None, "a node is being written"
        written = self.graph.call_function(target, args, kwargs)
        traced = self._like.meta["val"] if val is None else val
        written.meta = {key: value for key, value in self._like.meta.items() if key != "draw"}
        written.meta["val"] = _in_bounds(traced, dims)
        return written

    def arguments(self, node: fx.Node) -> tuple[Any, ...]:
        """The traced node's arguments in the new graph."""
        return fx.map_arg(node.args, self.nodes.__getitem__)  # type: ignore[return-value]

    def options(self, node: fx.Node) -> dict[str, Any]:
        """The traced node's keyword arguments in the new graph; they are the same in both traces."""
        if not _same_numbers(node.kwargs, self._pairs[node].kwargs):
            raise NotBoundedError(f"{node.target}: other options")
        return dict(fx.map_arg(node.kwargs, self.nodes.__getitem__))  # type: ignore[arg-type]

    def same(self, node: fx.Node, *places: int) -> None:
        """Require that arguments are the same in both traces; all of them where none are named."""
        mine, other = node.args, self._pairs[node].args
        for place in places or range(max(len(mine), len(other))):
            if place < max(len(mine), len(other)) and not _same_numbers(mine[place : place + 1], other[place : place + 1]):
                raise NotBoundedError(f"{node.target}: another argument {place}")

    def sizes_at(self, node: fx.Node, place: int) -> list[tuple[int, Size | None]]:
        """A list of sizes among the arguments: each as a number of the new graph, and whether values decide it."""
        given, others = node.args[place], self._pairs[node].args[place]
        if not isinstance(given, list | tuple) or not isinstance(others, list | tuple) or len(given) != len(others):
            raise NotBoundedError(f"{node.target}: sizes")
        return [self._size_of(one, other) for one, other in zip(given, others, strict=True)]

    def _size_of(self, one: Any, other: Any) -> tuple[int, Size | None]:
        if not isinstance(one, int) or not isinstance(other, int):
            raise NotBoundedError("a size that is a number of the program")
        if one == other:
            return one, None
        for size in self._all:
            if (size.here, size.there) == (one, other):
                return size.bound, size
        raise NotBoundedError(f"a size of {one} and {other}")

    def multiple(self, node: fx.Node, place: int) -> fx.Node | None:
        """A number among the arguments that is a multiple of a size, as a tensor of the new graph; None for a plain number."""
        one: Any = node.args[place]
        other: Any = self._pairs[node].args[place]
        if type(one) is not type(other) or not isinstance(one, int | float):
            raise NotBoundedError(f"{node.target}: a number")
        if one == other:
            return None
        for size in self._all:
            times = one / size.here
            if times == other / size.there and times == int(times):
                return self.elements(size, int(times))
        raise NotBoundedError(f"{node.target}: {one} and {other}")

    def elements(self, size: Size, times: int = 1) -> fx.Node:
        """How many elements count, times something, as a whole number."""
        self._count(size)
        assert size.count is not None
        if times == 1:
            return size.count
        return self.call(aten.mul.Scalar, size.count, times, dims=(), val=size.count.meta["val"])

    def _count(self, size: Size) -> None:
        if size.count is not None:
            return
        mask = self.nodes[size.mask]
        value = mask.meta["val"]
        selected = self.call(
            aten.ne.Scalar, mask, 0, dims=(None,) * value.dim(), val=value.new_empty(value.shape, dtype=torch.bool)
        )
        number = value.new_empty((), dtype=torch.int64)
        size.count = self.call(aten.sum.default, selected, dims=(), val=number)
        places = value.new_empty((size.bound,), dtype=torch.int64)
        numbers = self.call(aten.arange.default, size.bound, dims=(None,), val=places, dtype=torch.int64)
        flags = value.new_empty((size.bound,), dtype=torch.bool)
        size.outside = self.call(aten.ge.Tensor, numbers, size.count, dims=(None,), val=flags)

    def kept(self, node: fx.Node, fill: float, only: Sequence[int] | None = None) -> fx.Node:
        """A traced node's value with another one in place of what does not count.

        Args:
            node: the traced node.
            fill: the value.
            only: in these dimensions; None for all.
        """
        return self.put_out(self.nodes[node], self.dims[node], node.meta["val"], fill, only)

    def put_out(
        self, written: fx.Node, dims: Dims, value: torch.Tensor, fill: float, only: Sequence[int] | None = None
    ) -> fx.Node:
        """The same of a written node, whose traced value has these dimensions."""
        for place, size in enumerate(dims):
            if size is None or (only is not None and place not in only):
                continue
            self._count(size)
            assert size.outside is not None
            shape = [size.bound if d == place else 1 for d in range(len(dims))]
            flags = value.new_empty(shape, dtype=torch.bool)
            spread = self.call(aten.view.default, size.outside, shape, dims=(None,) * len(dims), val=flags)
            written = self.call(aten.masked_fill.Scalar, written, spread, fill, dims=dims, val=value)
        return written


def _plain(value: Any) -> Any:
    """The dimensions of a value that has nothing to do with sizes."""
    if isinstance(value, torch.Tensor):
        return (None,) * value.dim()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else ()


def _in_bounds(value: Any, dims: Any) -> Any:
    """A fake tensor, or a list of them, in the shape of the new graph."""
    if isinstance(value, list | tuple) and isinstance(dims, list):
        return type(value)(_in_bounds(one, of_one) for one, of_one in zip(value, dims, strict=True))
    if not isinstance(value, torch.Tensor) or all(size is None for size in dims):
        return value
    return value.new_empty([n if size is None else size.bound for n, size in zip(value.shape, dims, strict=True)])


def _same(node: fx.Node, twin: fx.Node) -> bool:
    """Whether two nodes have the same numbers among their arguments, and values of the same shape."""
    return (
        _same_numbers(node.args, twin.args)
        and _same_numbers(node.kwargs, twin.kwargs)
        and _shapes(node.meta.get("val")) == _shapes(twin.meta.get("val"))
    )


def _same_numbers(one: Any, other: Any) -> bool:
    return str(fx.map_arg(one, _hidden)) == str(fx.map_arg(other, _hidden))


def _hidden(source: fx.Node) -> Any:
    del source
    return "%"


def _shapes(value: Any) -> Hashable:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    return tuple(map(_shapes, value)) if isinstance(value, list | tuple) else type(value)
