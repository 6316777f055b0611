"""One graph for all sizes that values decide (`x[mask]`), of graphs of the same step for two or more of them.

A trace knows how many elements a mask selects for its batch, and every array has that size. Where other traces differ from
it in nothing but such sizes, the graph can be written for the largest possible one: arrays are as long as the mask, of
which the first `count` elements mean something, `count` being computed by the program. What follows the other elements through
the graph may be anything. Wherever an op would let one reach an element that counts (a sum, a product over this dimension, an
index), it is put out first, and means are divided by `count`.

A number in a trace does not say which mask it is the size of. What it is in all traces does: 9, 13 and 2 is the size of the
mask that selects so many in these three. The more traces there are, the fewer sizes are alike in all of them.

Ops are known one by one (`_bounded_rules.py`); with any other op, with a size in the step's results, and where the traces
differ in something else, there is no such graph, and each size keeps its own.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ._bounded_dims import NotBoundedError, Numbers, Size, SumTest
from ._bounded_nodes import Twins, is_item, sources
from ._bounded_writer import RuleOf, SumOf, Writer

aten = torch.ops.aten


@dataclass
class Bounded:
    """A graph for all sizes.

    Attributes:
        graph: the graph; inputs and outputs are those of the traced one, in the same order.
        counts: the traced graph's nodes that ask for a size which does not matter any more, and what it was in all traces; it
            holds for batches for which those that were alike are so again.
        masks: by such a node the number of the mask that it counts, or of the value that it is; those of one are always alike.
        sums: further sizes, of what lies one behind the other: what is always the same of them, and the sizes that are added,
            with how often each is.
        limits: by size: how many elements there are at least, and at most, in batches that the graph is valid for.
        tests: what has to hold of sizes besides.
    """

    graph: fx.Graph
    counts: dict[fx.Node, Numbers]
    masks: dict[fx.Node, Hashable]
    sums: dict[Numbers, tuple[int, tuple[tuple[Numbers, int], ...]]]
    limits: dict[Numbers, tuple[int, int | None]]
    tests: list[SumTest]


def with_bounded_sizes(
    graph: fx.Graph, others: Sequence[Twins], asked: Mapping[fx.Node, Numbers], rule_of: RuleOf, sum_of: SumOf
) -> Bounded | None:
    """The graph for all sizes; None where there is none.

    Args:
        graph: the newest trace.
        others: its nodes in earlier ones, by `twins_of`.
        asked: by node that was asked for as a size: the answer in all traces.
        rule_of: by op: how a node that has to do with sizes is written; None where nobody knows.
        sum_of: how Python added a number up of sizes; None where it did not.
    """
    masks = _masks(_value_numbers(graph))
    sizes = _sizes(graph, others, asked, masks)
    if not sizes:
        return None
    writer = Writer(others, {node: sizes[key] for node, key in masks.items() if key in sizes}, rule_of, sum_of)
    try:
        for node in graph.nodes:
            writer.write(node)
    except NotBoundedError:
        return None
    counted = {node: mask for node in graph.nodes if (mask := _counted(node, masks)) in sizes}
    counts = {node: sizes[mask].numbers for node, mask in counted.items()}
    sums = {
        size.numbers: (size.added[0], tuple((one.numbers, often) for one, often in size.added[1]))
        for size in writer.sizes
        if size.added
    }
    limits = {size.numbers: (size.fewest, size.most) for size in writer.sizes}
    return Bounded(writer.graph, counts, counted, sums, limits, writer.tests)


def twins_of(graph: fx.Graph, other: fx.Graph) -> Twins | None:
    """Nodes of another graph that do the same, apart from numbers and shapes; None where the graphs differ.

    A mask that selects one element or none in one of them alone may have PyTorch do other things, as it broadcasts, squeezes,
    and means nothing; these show in the ops, or in shapes that the rules do not expect.
    """
    if len(graph.nodes) != len(other.nodes):
        return None
    twins: dict[fx.Node, fx.Node] = {}
    for node, twin in zip(graph.nodes, other.nodes, strict=True):
        if (node.op, node.op == "call_function" and node.target) != (twin.op, twin.op == "call_function" and twin.target):
            return None
        if [twins[source] for source in sources(node)] != list(sources(twin)):
            return None
        if node.target is aten.nonzero_static.default:
            here, there = node.kwargs.get("size"), twin.kwargs.get("size")
            if not (isinstance(here, int) and isinstance(there, int)):
                return None
        twins[node] = twin
    return twins


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


def _masks(numbers: Mapping[fx.Node, Hashable]) -> dict[fx.Node, Hashable]:
    """By tensor the number of the mask that it is: of what is no boolean that of the question where it is not zero."""
    asked = {
        numbers[source]: number
        for node, number in numbers.items()
        if node.target is aten.ne.Scalar and node.args[1] == 0 and isinstance(source := node.args[0], fx.Node)
    }
    found: dict[fx.Node, Hashable] = {
        node: asked.get(number, number) for node, number in numbers.items() if _dtype(node) is not None
    }
    # of a value that is asked for the number is its own, whatever it is compared with
    for value in (node.args[0] for node in numbers if is_item(node)):
        if isinstance(value, fx.Node) and not _is_count(value):
            found[value] = ("value", numbers[value])
    return found


def _sizes(
    graph: fx.Graph, others: Sequence[Twins], answers: Mapping[fx.Node, Numbers], masks: Mapping[fx.Node, Hashable]
) -> dict[Hashable, Size]:
    """The sizes that differ between the traces, by the numbers of their masks, or of the values that they are."""
    found: dict[Hashable, Size] = {}
    alike: dict[Numbers, Size] = {}
    asked = {_counted(node, masks) for node in graph.nodes}
    for node in graph.nodes:
        if node.target is not aten.nonzero_static.default:
            continue
        mask = node.args[0]
        assert isinstance(mask, fx.Node), "masks are tensors"
        numbers: tuple[Any, ...] = tuple(one.kwargs["size"] for one in (node, *(twins[node] for twins in others)))
        if len(set(numbers)) > 1 and masks[mask] in asked:
            # two that are always equal cannot be told from two that were so by chance, so equal they have to be
            found[masks[mask]] = alike.setdefault(numbers, Size(mask.meta["val"].numel(), numbers))
    widths = {n for node in graph.nodes if node.op == "placeholder" for n in _shape(node)}
    for node, numbers in answers.items():
        if len(set(numbers)) > 1 and (key := _counted(node, masks)) not in found:
            found[key] = alike.setdefault(numbers, Size(_bound(max(numbers), widths), numbers))
    return found


def _bound(largest: int, widths: Collection[int]) -> int:
    """How large a size that is a value may be: as one of the inputs' dimensions, which it is likely to be about."""
    return min((n for n in widths if n >= largest), default=2 ** (largest - 1).bit_length())


def _shape(node: fx.Node) -> Sequence[int]:
    value = node.meta.get("val")
    return [n for n in value.shape if isinstance(n, int)] if isinstance(value, torch.Tensor) else ()


def _counted(node: fx.Node, masks: Mapping[fx.Node, Hashable]) -> Hashable:
    """The number of the mask whose elements a node counts for the host, or of the value that it asks for; None for others."""
    if not is_item(node):
        return None
    (value,) = node.args
    if not isinstance(value, fx.Node):
        return None
    return masks[value.args[0] if _is_count(value) else value]  # type: ignore[index]


def _is_count(value: Any) -> bool:
    """Whether a node is the number of elements that a mask selects."""
    return isinstance(value, fx.Node) and value.target is aten.sum.default and _dtype(value.args[0]) is torch.bool
