"""Writes, for the rules of ops, the graph for all sizes; see `_bounded_sizes.py`."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

aten = torch.ops.aten

Dims = tuple["Size | None", ...]
"""By dimension of a tensor: the size that values decide; None for one that is always the same."""

RuleOf = Callable[[Any], "Callable[[Writer, fx.Node], None] | None"]

Numbers = tuple[int, ...]
"""A number in all traces, the newest one first."""

SumOf = Callable[[Numbers], "tuple[Sequence[tuple[Numbers, int]], int] | None"]
"""From a number in all traces to the sizes that it is the sum of, with how often each is taken, and what is added besides."""

Twins = Mapping[fx.Node, fx.Node]
"""By node of the newest trace: the same node of another one."""


class NotBoundedError(Exception):
    """The graph cannot be written for all sizes."""


@dataclass(eq=False)
class Size:
    """How many elements a mask selects, or several masks that selected as many as each other in all traces; or a sum of these.

    Attributes:
        bound: how many it can select.
        numbers: how many it selected.
        mask: the first mask, in the written graph, with nothing selected of what does not count; None of a sum.
        count: the number in the written graph.
        outside: which of `bound` elements are none of the first `count`.
        last: by element its place, or that of the last one which counts.
        fewest: how many there are at least; batches of which a mask selects fewer than two have programs of their own.
        added: of a sum: what is always the same of it, and the sizes that are added.
        inner: where parts of a sum end, which is never behind its own end.
    """

    bound: int
    numbers: Numbers
    mask: fx.Node | None = None
    count: fx.Node | None = None
    outside: fx.Node | None = None
    last: fx.Node | None = None
    fewest: int = 2
    added: tuple[int, tuple[Size, ...]] | None = None
    inner: set[Numbers] = field(default_factory=set)


class Writer:
    """The graph for all sizes, as it is written node by node.

    Args:
        others: by node of the traced graph: the same node of each other trace.
        sizes: the sizes, by nodes that are their masks.
        rule_of: by op: how a node that has to do with sizes is written; None where nobody knows.
        sum_of: how Python added a number up of sizes; None where it did not.

    Attributes:
        graph: what is written so far.
        nodes: by traced node: the written one.
        dims: by traced node: the dimensions of its tensor, or of each tensor in its list.
        sizes: all that there are, sums among them.
    """

    def __init__(
        self,
        others: Sequence[Twins],
        sizes: Mapping[fx.Node, Size],
        rule_of: RuleOf,
        sum_of: SumOf,
    ) -> None:
        self.graph = fx.Graph()
        self.nodes: dict[fx.Node, fx.Node] = {}
        self.dims: dict[fx.Node, Any] = {}
        self._others, self._by_mask, self._rule_of, self._sum_of = others, sizes, rule_of, sum_of
        self.sizes = list(dict.fromkeys(sizes.values()))
        self._like: fx.Node | None = None

    def write(self, node: fx.Node) -> None:
        """Write a node: as it is, or by the rule of its op where it has to do with sizes."""
        self._like = node
        sized = node.target is aten.nonzero_static.default and node.args[0] in self._by_mask
        if not sized and not any(map(self._is_sized, sources(node))) and all(_same(node, twin) for twin in self._twins(node)):
            self.nodes[node] = self.graph.node_copy(node, self.nodes.__getitem__)
            self.dims[node] = _plain(node.meta.get("val"))
            return
        rule = self._rule_of(node.target)
        if rule is None:
            raise NotBoundedError(f"{node.target}")
        rule(self, node)
        for which, twin in enumerate(self._twins(node), 1):
            self._check(node, twin, which)

    def _twins(self, node: fx.Node) -> list[fx.Node]:
        return [twins[node] for twins in self._others]

    def _is_sized(self, node: fx.Node) -> bool:
        dims = self.dims[node]
        return any(size is not None for one in (dims if isinstance(dims, list) else [dims]) for size in one)

    def _check(self, node: fx.Node, twin: fx.Node, which: int) -> None:
        """Require that what a rule says of the dimensions is how they differ between this trace and another one."""
        dims = self.dims[node]
        values, others = (list(one) if isinstance(one, list | tuple) else [one] for one in (node.meta["val"], twin.meta["val"]))
        for value, other, of_value in zip(values, others, dims if isinstance(dims, list) else [dims], strict=True):
            if not isinstance(value, torch.Tensor):
                continue
            expected = [
                (n, n) if size is None else (size.numbers[0], size.numbers[which])
                for n, size in zip(value.shape, of_value, strict=True)
            ]
            if expected != list(zip(value.shape, other.shape, strict=True)):
                raise NotBoundedError(f"{node.target}: {expected} for {value.shape} and {other.shape}")

    def size(self, node: fx.Node) -> Size | None:
        """The size that a mask's positions have."""
        return self._by_mask.get(node)

    def selected(self, node: fx.Node) -> fx.Node:
        """A mask in the written graph, of which nothing is selected that does not count; what its size is counted of."""
        mask = self.kept(node, 0)
        size = self._by_mask.get(node)
        if size is not None and size.mask is None:
            size.mask, size.bound = mask, mask.meta["val"].numel()
        return mask

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
        """The traced node's keyword arguments in the new graph; they are the same in all traces."""
        if not all(_same_numbers(node.kwargs, twin.kwargs) for twin in self._twins(node)):
            raise NotBoundedError(f"{node.target}: other options")
        return dict(fx.map_arg(node.kwargs, self.nodes.__getitem__))  # type: ignore[arg-type]

    def same(self, node: fx.Node, *places: int) -> None:
        """Require that arguments are the same in all traces; all of them where none are named."""
        for twin in self._twins(node):
            mine, other = node.args, twin.args
            for place in places or range(max(len(mine), len(other))):
                if place < max(len(mine), len(other)) and not _same_numbers(mine[place : place + 1], other[place : place + 1]):
                    raise NotBoundedError(f"{node.target}: another argument {place}")

    def sizes_at(self, node: fx.Node, place: int) -> list[tuple[int, Size | None]]:
        """A list of sizes among the arguments: each as a number of the new graph, and whether values decide it."""
        given = [one.args[place] for one in (node, *self._twins(node))]
        if not all(isinstance(one, list | tuple) and len(one) == len(given[0]) for one in given):  # type: ignore[arg-type]
            raise NotBoundedError(f"{node.target}: sizes")
        return [self.length(numbers) for numbers in zip(*given, strict=True)]  # type: ignore[arg-type]

    def length(self, numbers: tuple[Any, ...]) -> tuple[int, Size | None]:
        """A number of elements in all traces, as one of the new graph, and the size that decides it."""
        if not all(isinstance(one, int) for one in numbers):
            raise NotBoundedError("a size that is a number of the program")
        if len(set(numbers)) == 1:
            return numbers[0], None
        for size in self.sizes:
            if size.numbers == numbers:
                return size.bound, size
        raise NotBoundedError(f"a size of {numbers}")

    def multiple(self, node: fx.Node, place: int) -> fx.Node | None:
        """A sum or a multiple of sizes among the arguments, as a tensor of the new graph; None for a plain number."""
        numbers: tuple[Any, ...] = tuple(one.args[place] for one in (node, *self._twins(node)))
        if len(set(map(type, numbers))) > 1 or not isinstance(numbers[0], int | float):
            raise NotBoundedError(f"{node.target}: a number")
        if len(set(numbers)) == 1:
            return None
        if all(one == int(one) for one in numbers) and (found := self._sum_of(tuple(map(int, numbers)))) is not None:
            return self._added_up(*found)
        for size in self.sizes:
            times = {one / count for one, count in zip(numbers, size.numbers, strict=True)}
            if len(times) == 1 and (factor := times.pop()) == int(factor):
                return self.elements(size, int(factor))
        raise NotBoundedError(f"{node.target}: {numbers}")

    def _added_up(self, parts: Sequence[tuple[Numbers, int]], offset: int) -> fx.Node:
        """A sum of sizes."""
        total: fx.Node | None = None
        for numbers, times in parts:
            size = next((one for one in self.sizes if one.numbers == numbers), None)
            if size is None:
                raise NotBoundedError(f"a size of {numbers}")
            part = self.elements(size, times)
            total = part if total is None else self.call(aten.add.Tensor, total, part, dims=(), val=part.meta["val"])
        assert total is not None, "the number differs between the traces"
        return self.call(aten.add.Scalar, total, offset, dims=(), val=total.meta["val"]) if offset else total

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
        assert size.mask is not None, "what has a size comes behind its mask, and a sum is counted when it is made"
        value = size.mask.meta["val"]
        selected = self.call(
            aten.ne.Scalar, size.mask, 0, dims=(None,) * value.dim(), val=value.new_empty(value.shape, dtype=torch.bool)
        )
        number = value.new_empty((), dtype=torch.int64)
        self._counted(size, self.call(aten.sum.default, selected, dims=(), val=number))

    def _counted(self, size: Size, count: fx.Node) -> None:
        number = count.meta["val"]
        size.count = count
        numbers = self.places(size.bound, number)
        places = numbers.meta["val"]
        flags = places.new_empty((size.bound,), dtype=torch.bool)
        size.outside = self.call(aten.ge.Tensor, numbers, count, dims=(None,), val=flags)
        end = self.call(aten.sub.Scalar, count, 1, dims=(), val=number)
        size.last = self.call(aten.minimum.default, numbers, end, dims=(None,), val=places)

    def places(self, bound: int, like: torch.Tensor) -> fx.Node:
        """The numbers from 0 up to a bound, beside a fake tensor."""
        value = like.new_empty((bound,), dtype=torch.int64)
        return self.call(aten.arange.default, bound, dims=(None,), val=value, dtype=torch.int64)

    def sum_of(self, parts: Sequence[tuple[int, Size | None]], like: torch.Tensor) -> Size:
        """The size of what lies one behind the other: of parts of which each has a size, or always the same number.

        Args:
            parts: each as a number of the new graph, and the size that decides it.
            like: a fake tensor.
        """
        fixed = sum(n for n, size in parts if size is None)
        decided = [size for _, size in parts if size is not None]
        if not fixed and len(decided) == 1:
            return decided[0]
        added = (fixed, tuple(sorted(decided, key=id)))
        numbers = tuple(fixed + sum(several) for several in zip(*(size.numbers for size in decided), strict=True))
        for size in self.sizes:
            if size.numbers == numbers and size.added == added:
                return size
            if size.numbers == numbers:
                raise NotBoundedError("a sum that is alike another size")
        number = like.new_empty((), dtype=torch.int64)
        total, *rest = (self.elements(size) for size in decided)
        for one in rest:
            total = self.call(aten.add.Tensor, total, one, dims=(), val=number)
        total = self.call(aten.add.Scalar, total, fixed, dims=(), val=number)
        size = Size(sum(n for n, _ in parts), numbers, fewest=fixed + sum(one.fewest for one in decided), added=added)
        self._counted(size, total)
        self.sizes.append(size)
        return size

    def place_in(self, size: Size, numbers: Numbers) -> fx.Node | int:
        """A place in a dimension, as a number of the new graph, which is not behind the dimension's end for any batch."""
        always = len(set(numbers)) == 1 and 0 <= numbers[0] <= size.fewest
        if not always and numbers != size.numbers and numbers not in size.inner:
            raise NotBoundedError(f"a place of {numbers} in {size.numbers}")
        bound, decides = self.length(numbers)
        return bound if decides is None else self.elements(decides)

    def numbers_at(self, node: fx.Node, place: int, default: int) -> Numbers:
        """A number among the arguments in all traces."""
        numbers: tuple[Any, ...] = tuple(
            one.args[place] if len(one.args) > place else default for one in (node, *self._twins(node))
        )
        if not all(isinstance(one, int) for one in numbers):
            raise NotBoundedError("a place that is a number of the program")
        return numbers

    def kept(self, node: fx.Node, fill: float, only: Sequence[int] | None = None) -> fx.Node:
        """A traced node's value with another one in place of what does not count.

        Args:
            node: the traced node.
            fill: the value.
            only: in these dimensions; None for all.
        """
        return self.put_out(self.nodes[node], self.dims[node], node.meta["val"], fill, only)

    def repeated(self, node: fx.Node) -> fx.Node:
        """A traced node's value with the last row that counts again in place of those that do not."""
        written, dims = self.nodes[node], self.dims[node]
        for place, size in enumerate(dims):
            if size is None:
                continue
            self._count(size)
            assert size.last is not None
            written = self.call(aten.index_select.default, written, place, size.last, dims=dims, val=node.meta["val"])
        return written

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


def sources(node: fx.Node) -> list[fx.Node]:
    """The nodes that a node is computed from, in the order of its arguments."""
    found: list[fx.Node] = []
    fx.map_arg((node.args, node.kwargs), lambda source: (found.append(source), source)[1])
    return found
