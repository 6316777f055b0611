"""Writes, for the rules of ops, the graph for all sizes; see `_bounded_sizes.py`."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from ._bounded_dims import Dims, NotBoundedError, Numbers, Place, Size, SumTest, factor, in_bounds, plain
from ._bounded_nodes import Twins, is_item, same, same_numbers, sources

aten = torch.ops.aten

RuleOf = Callable[[Any], "tuple[Callable[[Writer, fx.Node], None] | None, bool]"]

SumOf = Callable[[Numbers], "tuple[Sequence[tuple[Numbers, int]], int] | None"]
"""From a number in all traces to the sizes that it is the sum of, with how often each is taken, and what is added besides.

None where Python did not add it up; no sizes where it did so in several ways.
"""


class Writer:
    """The graph for all sizes, as it is written node by node.

    Args:
        others: by node of the traced graph: the same node of each other trace.
        sizes: the sizes, by nodes that are their masks.
        rule_of: by op: how a node that has to do with sizes is written, None where nobody knows; and whether it may have to do
            with such as have what does not count behind each of their parts.
        sum_of: how Python added a number up of sizes; None where it did not.

    Attributes:
        graph: what is written so far.
        nodes: by traced node: the written one.
        dims: by traced node: the dimensions of its tensor, or of each tensor in its list.
        sizes: all that there are, sums among them.
        tests: what has to hold of sizes besides.
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
        self.tests: list[SumTest] = []
        self._like: fx.Node | None = None
        self._lists: dict[fx.Node, list[fx.Node]] = {}

    def write(self, node: fx.Node) -> None:
        """Write a node: as it is, or by the rule of its op where it has to do with sizes."""
        self._like = node
        sized = node.target is aten.nonzero_static.default and node.args[0] in self._by_mask
        if not sized and not any(map(self._is_sized, sources(node))) and all(same(node, twin) for twin in self._twins(node)):
            self.nodes[node] = self.graph.node_copy(node, self.nodes.__getitem__)
            self.dims[node] = plain(node.meta.get("val"))
            self._take_value(node)
            return
        rule, parted = self._rule_of(node.target)
        if rule is None:
            raise NotBoundedError(f"{node.target}")
        rule(self, node)
        if not parted and any(size.part for one in (node, *sources(node)) for size in self._sizes_of(one)):
            raise NotBoundedError(f"{node.target}: a size that is joined with one before it")
        for which, twin in enumerate(self._twins(node), 1):
            self._check(node, twin, which)

    def _take_value(self, node: fx.Node) -> None:
        """Count a size that is a value, where none of its masks has come before."""
        value = node.args[0] if is_item(node) else None
        size = self._by_mask.get(value) if isinstance(value, fx.Node) else None
        if isinstance(value, fx.Node) and size is not None and size.mask is None and size.count is None:
            self._counted(size, self.nodes[value])
            self.require(size, most=size.bound)

    def _twins(self, node: fx.Node) -> list[fx.Node]:
        return [twins[node] for twins in self._others]

    def _is_sized(self, node: fx.Node) -> bool:
        return bool(self._sizes_of(node))

    def _sizes_of(self, node: fx.Node) -> list[Size]:
        dims = self.dims[node]
        return [size for one in (dims if isinstance(dims, list) else [dims]) for size in one if size is not None]

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
        if size is not None and size.mask is None and size.count is None:
            size.mask, size.bound = mask, mask.meta["val"].numel()
        return mask

    def put(self, node: fx.Node, written: fx.Node, dims: Any) -> None:
        """Note what stands for a traced node, with the dimensions of its tensor or tensors."""
        self.nodes[node], self.dims[node] = written, dims

    def put_each(self, node: fx.Node, written: Sequence[fx.Node], dims: Sequence[Dims]) -> None:
        """Note what stands for each tensor in a traced node's list."""
        self.nodes[node], self.dims[node], self._lists[node] = written[0], list(dims), list(written)

    def element(self, node: fx.Node, number: int) -> fx.Node | None:
        """The node for a tensor in a traced node's list, where each was written alone."""
        return self._lists[node][number] if node in self._lists else None

    def call(self, target: Any, *args: Any, dims: Any, val: Any = None, **kwargs: Any) -> fx.Node:
        """Write a call for the traced node at hand; its value is `val`'s, or that node's, in the shape that `dims` says."""
        assert self._like is not None, "a node is being written"
        written = self.graph.call_function(target, args, kwargs)
        traced = self._like.meta["val"] if val is None else val
        # what is drawn stays numbered
        written.meta = {key: value for key, value in self._like.meta.items() if key != "draw" or target is self._like.target}
        written.meta["val"] = in_bounds(traced, dims)
        return written

    def arguments(self, node: fx.Node) -> tuple[Any, ...]:
        """The traced node's arguments in the new graph."""
        return fx.map_arg(node.args, self.nodes.__getitem__)  # type: ignore[return-value]

    def options(self, node: fx.Node) -> dict[str, Any]:
        """The traced node's keyword arguments in the new graph; they are the same in all traces."""
        if not all(same_numbers(node.kwargs, twin.kwargs) for twin in self._twins(node)):
            raise NotBoundedError(f"{node.target}: other options")
        return dict(fx.map_arg(node.kwargs, self.nodes.__getitem__))  # type: ignore[arg-type]

    def same(self, node: fx.Node, *places: int) -> None:
        """Require that arguments are the same in all traces; all of them where none are named."""
        for twin in self._twins(node):
            mine, other = node.args, twin.args
            for place in places or range(max(len(mine), len(other))):
                if place < max(len(mine), len(other)) and not same_numbers(mine[place : place + 1], other[place : place + 1]):
                    raise NotBoundedError(f"{node.target}: another argument {place}")

    def sizes_at(self, node: fx.Node, place: int) -> list[tuple[int, Size | None]]:
        """A list of sizes among the arguments: each as a number of the new graph, and whether values decide it."""
        given = [one.args[place] for one in (node, *self._twins(node))]
        if not all(isinstance(one, list | tuple) and len(one) == len(given[0]) for one in given):  # type: ignore[arg-type]
            raise NotBoundedError(f"{node.target}: sizes")
        return [self.length(numbers, parted=True) for numbers in zip(*given, strict=True)]  # type: ignore[arg-type]

    def length(self, numbers: tuple[Any, ...], *, parted: bool = False) -> tuple[int, Size | None]:
        """A number of elements in all traces, as one of the new graph, and the size that decides it.

        Args:
            numbers: by trace.
            parted: it may be one that has what does not count behind each of its parts.
        """
        if not all(isinstance(one, int) for one in numbers):
            raise NotBoundedError("a size that is a number of the program")
        if len(set(numbers)) == 1:
            return numbers[0], None
        for size in self.sizes:
            if size.numbers == numbers and (parted or not size.part):
                return size.bound, size
        raise NotBoundedError(f"a size of {numbers}")

    def multiple(self, node: fx.Node, place: int) -> fx.Node | None:
        """A sum or a multiple of sizes among the arguments, as a tensor of the new graph; None for a plain number."""
        numbers: tuple[Any, ...] = tuple(one.args[place] for one in (node, *self._twins(node)))
        if len(set(map(type, numbers))) > 1 or not isinstance(numbers[0], int | float):
            raise NotBoundedError(f"{node.target}: a number")
        if len(set(numbers)) == 1:
            self._require_no_product(numbers)
            return None
        if all(one == int(one) for one in numbers) and (found := self._sum_of(tuple(map(int, numbers)))) and found[0]:
            return self._added_up(*found)
        for size in self.sizes:
            if times := factor(numbers, size.numbers):
                return self.elements(size, times)
        for one, other in itertools.combinations_with_replacement(self.sizes, 2):
            pairs = tuple(a * b for a, b in zip(one.numbers, other.numbers, strict=True))
            if times := factor(numbers, pairs):
                many, by = self.elements(one, times), self.elements(other)
                return self.call(aten.mul.Tensor, many, by, dims=(), val=by.meta["val"])
        for size in self.sizes:
            if numbers == tuple(n - 1 for n in size.numbers):
                self.require(size, 1)
                return self._added_up([(size.numbers, 1)], -1)
        raise NotBoundedError(f"{node.target}: {numbers}")

    def _require_no_product(self, numbers: Sequence[float]) -> None:
        """Require that a number which is the same in all traces is none by chance: of two sizes, as 6 * 4 and 4 * 6."""
        for one, other in itertools.combinations(self.sizes, 2):
            products = {a * b for a, b in zip(one.numbers, other.numbers, strict=True)}
            if len(products) == 1 and (product := products.pop()) and numbers[0] % product == 0:
                raise NotBoundedError(f"{numbers[0]}, or a product of two sizes")

    def divisor_of_two(self, node: fx.Node, place: int) -> fx.Node | None:
        """The number of elements, or one fewer, where two by it is among the arguments, as the gradient of a variance has it.

        What Python computes of sizes is followed or refused, so a number that differs between the traces is PyTorch's own. None
        for any other.
        """
        numbers: tuple[Any, ...] = tuple(one.args[place] for one in (node, *self._twins(node)))
        if len(set(numbers)) == 1 or not all(isinstance(one, float) and one > 0 for one in numbers):
            return None
        for size, fewer in itertools.product(self.sizes, (0, 1)):
            times = round((2 / numbers[0] + fewer) / max(1, size.numbers[0]))
            divisors = [times * n - fewer for n in size.numbers]
            if times > 0 and all(n > 0 and 2 / n == one for n, one in zip(divisors, numbers, strict=True)):
                self.require(size, 1 + fewer)
                many = self.elements(size, times)
                return self.call(aten.sub.Scalar, many, fewer, dims=(), val=many.meta["val"]) if fewer else many
        return None

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
        if size.mask is None:
            self._find_mask(size)
        assert size.mask is not None, "it was found"
        value = size.mask.meta["val"]
        selected = self.call(
            aten.ne.Scalar, size.mask, 0, dims=(None,) * value.dim(), val=value.new_empty(value.shape, dtype=torch.bool)
        )
        number = value.new_empty((), dtype=torch.int64)
        self._counted(size, self.call(aten.sum.default, selected, dims=(), val=number))

    def _find_mask(self, size: Size) -> None:
        """Take a mask of a size of which nothing but the number is used, so that no positions are asked of any."""
        written = (node for node, one in self._by_mask.items() if one is size and node in self.nodes)
        mask = next((node for node in written if not any(map(is_item, node.users))), None)
        if mask is None:
            raise NotBoundedError("a size before its mask, or its value")
        self.selected(mask)

    def _counted(self, size: Size, count: fx.Node) -> None:
        number = count.meta["val"]
        size.count = count
        places = within = self.places(size.bound, number)
        like = places.meta["val"]
        flags = like.new_empty((size.bound,), dtype=torch.bool)
        if size.part and size.added is not None:  # each part has what counts of the size that is joined
            within = self.call(aten.remainder.Scalar, places, size.part, dims=(None,), val=like)
            count = self.elements(size.added[1][0][0])
        size.outside = self.call(aten.ge.Tensor, within, count, dims=(None,), val=flags)
        end = self.call(aten.sub.Scalar, count, 1, dims=(), val=number)
        size.last = self.call(aten.minimum.default, within, end, dims=(None,), val=like)
        if size.part:
            begin = self.call(aten.sub.Tensor, places, within, dims=(None,), val=like)
            size.last = self.call(aten.add.Tensor, begin, size.last, dims=(None,), val=like)

    def places(self, bound: int, like: torch.Tensor) -> fx.Node:
        """The numbers from 0 up to a bound, beside a fake tensor."""
        value = like.new_empty((bound,), dtype=torch.int64)
        return self.call(aten.arange.default, bound, dims=(None,), val=value, dtype=torch.int64)

    def sum_of(self, parts: Sequence[tuple[int, Size | None]], like: torch.Tensor, any_bound: bool = False) -> Size:
        """The size of what lies one behind the other: of parts of which each has a size, or always the same number.

        Args:
            parts: each as a number of the new graph, and the size that decides it.
            like: a fake tensor.
            any_bound: it may be the size of a mask, or a value, that has another bound than the parts together.
        """
        fixed = sum(n for n, size in parts if size is None)
        decided = Counter(size for _, size in parts if size is not None)
        if not fixed and decided.total() == 1:
            return next(iter(decided))
        return self._sum(fixed, decided, like, any_bound)

    def scaled(self, size: Size, times: int, divided: int, like: torch.Tensor) -> Size:
        """A multiple of a size, divided by another number again: the dimension that it and those behind it are joined to."""
        if times == divided:
            return size
        fixed, added = size.added or (0, ((size, 1),))
        if any((often * times) % divided for often in (fixed, *(often for _, often in added))):
            raise NotBoundedError("a part of a size")
        fixed = fixed * times // divided
        multiple = Counter({one: often * times // divided for one, often in added})
        return next(iter(multiple)) if not fixed and multiple.total() == 1 else self._sum(fixed, multiple, like)

    def _sum(self, fixed: int, decided: Counter[Size], like: torch.Tensor, any_bound: bool = False) -> Size:
        added = (fixed, tuple(sorted(decided.items(), key=lambda one: id(one[0]))))
        multiples = ([n * often for n in size.numbers] for size, often in added[1])
        numbers = tuple(fixed + sum(column) for column in zip(*multiples, strict=True))
        bound = fixed + sum(one.bound * often for one, often in added[1])
        is_whole = len(set(numbers)) == 1  # of which there may be several, of parts of their own
        alike = [] if is_whole else [one for one in self.sizes if one.numbers == numbers and not one.part]
        for size in alike:
            if size.added == added:
                return size
            if size.added is not None:
                raise NotBoundedError("a sum that is alike another sum")
            if (size.mask is None and size.count is None) or (size.bound != bound and not any_bound):
                raise NotBoundedError("a sum that is alike another size")
            self.test([(size, -1), *added[1]], "eq", -fixed)  # equal to a mask's size or a value it has to be
            return size
        number = like.new_empty((), dtype=torch.int64)
        total, *rest = (self.elements(size, often) for size, often in added[1])
        for one in rest:
            total = self.call(aten.add.Tensor, total, one, dims=(), val=number)
        total = self.call(aten.add.Scalar, total, fixed, dims=(), val=number)
        size = Size(bound, numbers, added=added)
        self._counted(size, total)
        if not is_whole:
            self.sizes.append(size)
        return size

    def parted(self, size: Size, times: int) -> Size:
        """The dimension that a size and others before it, of so many elements together, are joined to."""
        for one in self.sizes:
            if one.part and one.added == (0, ((size, times),)):
                return one
        numbers = tuple(n * times for n in size.numbers)
        found = Size(size.bound * times, numbers, added=(0, ((size, times),)), part=size.bound)
        self._counted(found, self.elements(size, times))
        self.sizes.append(found)
        return found

    def test(self, sizes: Iterable[tuple[Size, int]], comparison: str, number: int) -> None:
        """Have the graph hold for batches of which sizes compare so with a number; all traces have to.

        Args:
            sizes: what is added, with how often each is; some may be sums.
            comparison: the name of Python's function, such as "le".
            number: what it is compared with.
        """
        parts: Counter[Numbers] = Counter()
        offset, waiting = -number, list(sizes)
        while waiting:
            one, times = waiting.pop()
            fixed, added = one.added or (0, ())
            offset += times * fixed
            waiting += [(part, times * often) for part, often in added]
            if one.added is None:
                parts[one.numbers] += times
        self.tests.append(SumTest(tuple(parts.items()), offset, comparison))

    def require(self, size: Size, fewest: int = 0, most: int | None = None) -> None:
        """Have the graph hold for batches of which a mask selects so many at least and at most; all traces have to.

        Of what is added up to a sum, one part alone is required to be as many as the sum needs.
        """
        if size.added is not None:
            (part, often), *others = size.added[1]
            missing = fewest - size.least
            if (others and missing > 0) or (most is not None and most < size.bound):
                raise NotBoundedError("a condition on a sum of sizes")
            if missing > 0:
                self.require(part, part.least + math.ceil(missing / often))
            return
        if not all(fewest <= n and (most is None or n <= most) for n in size.numbers):
            raise NotBoundedError(f"{fewest} to {most} of {size.numbers}")
        size.fewest = max(size.fewest, fewest)
        if most is not None:
            size.most = most if size.most is None else min(size.most, most)

    def place_in(self, size: Size, numbers: Numbers) -> Place:
        """A place in a dimension, as Python gives it to a slice, in all traces."""
        if len(set(numbers)) == 1:
            (always,) = set(numbers)
            if always < 0:
                self.require(size, -always)
                return Place(size, always)
            if all(n <= always for n in size.numbers):
                if always < size.bound:
                    self.require(size, most=always)
                return Place(size, 0)
            if numbers not in size.inner:
                self.require(size, always)
            return Place(None, always)
        if numbers == size.numbers:
            return Place(size, 0)
        if numbers in size.inner:
            return Place(self.length(numbers)[1], 0)
        # what Python did not add up PyTorch has, which counts from the end of this dimension
        added_up = self._sum_of(numbers)
        offsets = {number - n for number, n in zip(numbers, size.numbers, strict=True)}
        own = (min(offsets), ((size, 1),))
        others = any(one.numbers == numbers and one.added != own for one in self.sizes)
        if others or (added_up and list(added_up[0]) != [(size.numbers, 1)]) or len(offsets) > 1 or min(offsets) > 0:
            raise NotBoundedError(f"a place of {numbers} in {size.numbers}")
        self.require(size, -min(offsets))
        return Place(size, min(offsets))

    def at(self, place: Place) -> fx.Node | int:
        """A place as a number of the new graph."""
        if place.base is None:
            return place.offset
        end = self.elements(place.base)
        return self.call(aten.add.Scalar, end, place.offset, dims=(), val=end.meta["val"]) if place.offset else end

    def between(self, begin: Place, end: Place, like: torch.Tensor) -> tuple[int, Size | None]:
        """How far a place is behind another one, as it has to be: a number of the new graph, and the size that decides it."""
        behind = end.offset - begin.offset
        if begin.base is end.base:
            if behind < 0:
                raise NotBoundedError("nothing between two places")
            return behind, None
        if begin.base is None:
            assert end.base is not None, "the other one is behind what counts"
            self.require(end.base, -behind)
            size = self.sum_of([(end.base.bound, end.base), *([(behind, None)] if behind else [])], like)
            return size.bound, size
        if end.base is None or begin.offset or end.offset:
            raise NotBoundedError("places in different parts")
        return self.length(tuple(b - a for a, b in zip(begin.base.numbers, end.base.numbers, strict=True)))

    def numbers_at(self, node: fx.Node, place: int | str, default: int = 0) -> Numbers:
        """A number among the arguments in all traces."""
        given = [dict(enumerate(one.args)) | one.kwargs for one in (node, *self._twins(node))]
        numbers: tuple[Any, ...] = tuple(one.get(place, default) for one in given)
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
        """A traced node's value with the last row that counts, which there has to be, in place of those that do not."""
        written, dims = self.nodes[node], self.dims[node]
        for place, size in enumerate(dims):
            if size is None:
                continue
            self.require(size, 1)
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
