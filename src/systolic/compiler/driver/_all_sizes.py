"""Program for all sizes that values decide, once a second size has come up; see `compiler/passes/_bounded_sizes.py`."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import fx

from ..capture import Captured, SizeReads, SizeSum, SlotInput, Speculation, TensorInput
from ..passes import Bounded, Numbers, Twins, rule_of, twins_of, with_bounded_sizes

_MOST_COMPARED = 6
"""Traces: each is one more number by which sizes are told apart, and one more graph that is walked with the newest."""


def for_all_sizes(captured: Captured, earlier: Iterable[Captured]) -> Captured:
    """A capture of the same step for all sizes, if earlier ones differ in nothing else; else the capture itself.

    Args:
        captured: the newest capture.
        earlier: those before it for arguments of the same shapes, the newest first.
    """
    if not any(one.is_size for one in captured.speculations):
        return captured
    alike: Iterator[tuple[Captured, Twins]] = (
        (one, twins)
        for one in (one.as_traced or one for one in earlier)
        if _may_differ_in_sizes_alone(captured, one) and (twins := twins_of(captured.graph, one.graph)) is not None
    )
    found = list(islice(alike, _MOST_COMPARED))
    # of all traces more is known; of two it may be that more of them is alike
    for group in (found, *([one] for one in found if len(found) > 1)):
        if group and (bounded := _bounded(captured, group)) is not None:
            return bounded
    return captured


def _bounded(captured: Captured, others: Sequence[tuple[Captured, Twins]]) -> Captured | None:
    reads = [captured.sizes, *(one.sizes for one, _ in others)]
    nodes = _size_nodes(captured)
    answers = [[one.size for one in trace.speculations] for trace in (captured, *(one for one, _ in others))]
    asked: dict[fx.Node, Any] = {node: tuple(of[place] for of in answers) for place, node in nodes.items()}
    bounded = with_bounded_sizes(captured.graph, [twins for _, twins in others], asked, rule_of, partial(_sum_of, reads))
    if bounded is None or (kept := _conditions(captured, reads, bounded, nodes)) is None:
        return None
    return dataclasses.replace(captured, graph=bounded.graph, speculations=kept, digest="", as_traced=captured)


def _may_differ_in_sizes_alone(captured: Captured, other: Captured) -> bool:
    return (
        _did_the_same(captured.sizes, other.sizes)
        and _questions(captured.speculations) == _questions(other.speculations)
        and len(captured.inputs) == len(other.inputs)
        and all(map(_same_input, captured.inputs, other.inputs))
    )


def _did_the_same(one: SizeReads, other: SizeReads) -> bool:
    """Whether Python did the same with both batches' sizes, and what is not followed with the same numbers."""
    return one.seen == other.seen and [(test.comparison, test.holds) for test in one.tests] == [
        (test.comparison, test.holds) for test in other.tests
    ]


def _sum_of(reads: Sequence[SizeReads], numbers: Numbers) -> tuple[list[tuple[Numbers, int]], int] | None:
    """The sizes that a number was added up of in all traces; none where it was so in several ways; None where it was not."""
    if not any(number in one.sums for one, number in zip(reads, numbers, strict=True)):
        return None
    sums = [one.sums.get(number) for one, number in zip(reads, numbers, strict=True)]
    known = [one for one in sums if one is not None]
    parts = _parts(known) if len(known) == len(sums) else None
    return ([], 0) if parts is None else parts


def _parts(sums: Sequence[SizeSum]) -> tuple[list[tuple[Numbers, int]], int] | None:
    """The sizes that differ between the traces in a sum, how often each is taken, and what is added; None for other sums."""
    if len({(one.offset, *(times for _, times in one.parts)) for one in sums}) != 1:
        return None
    parts: list[tuple[Numbers, int]] = []
    offset = sums[0].offset
    for place, (shape, times) in enumerate(sums[0].parts):
        shapes = [one.parts[place][0] for one in sums]
        if len(set(map(len, shapes))) != 1:
            return None
        differing = [numbers for numbers in zip(*shapes, strict=True) if len(set(numbers)) > 1]
        if len(differing) > 1 or any(0 in numbers for numbers in differing):
            return None
        if differing:
            parts.append((differing[0], times * (math.prod(shape) // differing[0][0])))
        else:
            offset += times * math.prod(shape)
    return parts, offset


def _questions(speculations: Iterable[Speculation]) -> list[object]:
    """Questions of a trace, without the sizes that were the answers."""
    return [(one.line, one.outputs) if one.is_size else (one.text, one.holds) for one in speculations]


def _same_input(one: SlotInput | TensorInput, other: SlotInput | TensorInput) -> bool:
    if isinstance(one, SlotInput) or isinstance(other, SlotInput):
        return one == other
    a, b = one.constant, other.constant
    if a is None or b is None or a is b:
        return a is b and one.leaf == other.leaf
    # made of a size, it is a constant of one batch
    return a.shape == b.shape and a.dtype == b.dtype and type(a) is type(b) is torch.Tensor and torch.equal(a, b)


@dataclass(frozen=True)
class _SizeTest:
    """A comparison of sizes with zero, over the values of some of a graph's outputs.

    Attributes:
        parts: which of the values, and how often each is taken.
        offset: what is added.
        comparison: the name of Python's function for it.
        holds: whether it has to hold.
    """

    parts: tuple[tuple[int, int], ...]
    offset: int
    comparison: str
    holds: bool

    def __call__(self, values: Any) -> Any:
        difference = sum((times * values[place] for place, times in self.parts), self.offset)
        return getattr(operator, self.comparison)(difference, 0) == self.holds


@dataclass(frozen=True)
class _FitsAllSizes:
    """In place of the condition that a mask selects so many elements: that it selects as many as the graph needs.

    Besides, Python's comparisons have to come out as they did.

    Attributes:
        place: which of the values, which are all sizes, is this one.
        fewest: elements that it selects.
        most: elements that it selects; None for any number.
        tests: the comparisons.
    """

    place: int
    fewest: int
    most: int | None
    tests: tuple[_SizeTest, ...]

    def __call__(self, values: Any) -> Any:
        holds = values[self.place] >= self.fewest
        if self.most is not None:
            holds = holds & (values[self.place] <= self.most)
        for test in self.tests:
            holds = holds & test(values)
        return holds


def _size_nodes(captured: Captured) -> dict[int, fx.Node]:
    """The nodes that were asked for as sizes, by the number of the question."""
    (output,) = (node for node in captured.graph.nodes if node.op == "output")
    results: Any = output.args[0]
    return {place: results[one.outputs[0]] for place, one in enumerate(captured.speculations) if one.is_size}


def _conditions(
    captured: Captured, reads: Sequence[SizeReads], bounded: Bounded, nodes: Mapping[int, fx.Node]
) -> list[Speculation] | None:
    """The conditions under which the graph for all sizes is valid; None where they are not known."""
    asked = [(place, bounded.counts[node]) for place, node in nodes.items() if node in bounded.counts]
    first = {numbers: which for which, (_, numbers) in reversed(list(enumerate(asked)))}
    tests = _tests(reads, first, bounded)
    if tests is None:
        return None
    outputs = tuple(captured.speculations[place].outputs[0] for place, _ in asked)
    kept = list(captured.speculations)
    for which, (place, numbers) in enumerate(asked):
        same = first[numbers]
        of_one_mask = bounded.masks[nodes[place]] == bounded.masks[nodes[asked[same][0]]]
        alike = [] if of_one_mask else [_SizeTest(((which, 1), (same, -1)), 0, "eq", True)]
        # Python's comparisons stand with the last size that is asked for
        condition = _FitsAllSizes(which, *bounded.limits[numbers], (*alike, *(tests if which == len(asked) - 1 else ())))
        text = f"{condition} of {outputs} at {kept[place].line}"
        kept[place] = dataclasses.replace(
            kept[place],
            condition=condition,
            outputs=outputs,
            text=text,
            number=operator.itemgetter(which),
            always_holds=not condition.fewest and condition.most is None and not condition.tests,
        )
    return kept


def _tests(reads: Sequence[SizeReads], first: Mapping[Numbers, int], bounded: Bounded) -> tuple[_SizeTest, ...] | None:
    """Comparisons of sizes that differ from batch to batch, over their values; None where one is of something else.

    They are Python's, and what the graph needs besides.
    """
    found: dict[_SizeTest, None] = {}
    for tests in zip(*(one.tests for one in reads), strict=True):
        sum_of_sizes = _parts([one.difference for one in tests])
        if sum_of_sizes is None or (test := _test(*sum_of_sizes, tests[0].comparison, tests[0].holds, first, bounded)) is None:
            return None
        if test.parts:
            found[test] = None
    for one in bounded.tests:
        if (test := _test(one.parts, one.offset, one.comparison, True, first, bounded)) is None:
            return None
        found[test] = None
    return tuple(found)


def _test(
    parts: Sequence[tuple[Numbers, int]],
    offset: int,
    comparison: str,
    holds: bool,
    first: Mapping[Numbers, int],
    bounded: Bounded,
) -> _SizeTest | None:
    """A comparison of a sum of sizes with zero, over the values of those that are asked for; None where one is not."""
    waiting = list(parts)
    decided: list[tuple[int, int]] = []
    while waiting:
        numbers, times = waiting.pop()
        if numbers in first:
            decided.append((first[numbers], times))
        elif numbers in bounded.sums:
            fixed, added = bounded.sums[numbers]
            offset += times * fixed
            waiting += [(one, times * often) for one, often in added]
        else:
            return None
    return _SizeTest(tuple(decided), offset, comparison, holds)
