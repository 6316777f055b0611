"""The parts of a graph that belong to members of lists of modules, and runs of such parts that look alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from ..lowering import OPTIMIZER, SCOPE, is_backward

BACKWARD_SCOPE = "backward/"
"""The beginning of the scopes of gradients."""

LEAST = 3
"""As many layers as a loop has at least: two would hardly make a program smaller."""

DEEPEST = 4
"""Lists inside of lists are looked at up to this depth."""

_LONGEST_PERIOD = 8
"""Layers that repeat in turn (five local, one global attention) are looked for up to this number of them."""


@dataclass(frozen=True)
class Visit:
    """One way through a list of modules, forward or backward.

    Attributes:
        path: of the list, "model.net.h".
        backward: whether it is the backward pass.
        members: the nodes of each member, by its number, in the order of the graph.
    """

    path: str
    backward: bool
    members: Mapping[int, tuple[fx.Node, ...]]


def visits(nodes: Sequence[fx.Node], depth: int) -> list[Visit]:
    """Ways through the lists that are the `depth`-th ones on their paths, in the order of the graph.

    Args:
        nodes: those that may belong to layers, in the order of the graph.
        depth: 0 for the outermost lists.
    """
    found: dict[tuple[str, bool], dict[int, list[list[fx.Node]]]] = defaultdict(lambda: defaultdict(list))
    last: dict[tuple[str, bool], int] = {}
    for node in nodes:
        place = member_of(node, depth)
        if place is None:
            continue
        path, number = place
        key = path, is_backward(node)
        if last.get(key) != number:
            found[key][number].append([])
        last[key] = number
        found[key][number][-1].append(node)
    return [Visit(*key, members) for key, by_member in found.items() for members in _ways(by_member)]


def _ways(by_member: Mapping[int, list[list[fx.Node]]]) -> Iterator[dict[int, tuple[fx.Node, ...]]]:
    """The members' nodes, for each time that they all run."""
    times = {len(runs) for runs in by_member.values()}
    ordered = sorted(by_member)
    if len(times) == 1:
        for time in range(times.pop()):
            yield {number: tuple(by_member[number][time]) for number in ordered}
    else:
        yield {number: tuple(node for run in by_member[number] for node in run) for number in ordered}


def member_of(node: fx.Node, depth: int) -> tuple[str, int] | None:
    """The `depth`-th list on the way to a node's module, and the member's number; None for a node outside of such lists."""
    scope = node.meta.get(SCOPE) or ""
    if scope == OPTIMIZER:
        return None
    path = scope.removeprefix(BACKWARD_SCOPE).split(".")
    numbers = [at for at, part in enumerate(path) if part.isdigit()]
    if len(numbers) <= depth:
        return None
    at = numbers[depth]
    return ".".join(path[:at]), int(path[at])


@dataclass(frozen=True)
class Run:
    """Members that look alike: `period` of them, again and again.

    Attributes:
        start: the place of the first one.
        period: how many make up a layer.
        count: how many layers.
    """

    start: int
    period: int
    count: int


def runs(labels: Sequence[Hashable]) -> list[Run]:
    """The longest runs of members whose labels repeat, `LEAST` times at least.

    Example:
        >>> runs(["in", "linear", "relu", "linear", "relu", "linear", "relu", "out"])
        [Run(start=1, period=2, count=3)]
    """
    known: dict[Hashable, int] = {}
    return list(_runs([known.setdefault(label, len(known)) for label in labels], 0, len(labels)))


def _runs(labels: Sequence[int], start: int, end: int) -> Iterator[Run]:
    """The longest run between two places, and those beside it."""
    periods = range(1, _LONGEST_PERIOD + 1)
    found = (_run(labels[:end], at, period) for at in range(start, end) for period in periods)
    best = max(found, key=lambda one: one.count * one.period, default=None)
    if best is not None and best.count:
        yield from _runs(labels, start, best.start)
        yield best
        yield from _runs(labels, best.start + best.count * best.period, end)


def _run(labels: Sequence[int], start: int, period: int) -> Run:
    """How often the labels from `start` on repeat; a run of fewer than `LEAST` counts for nothing."""
    model, count = labels[start : start + period], 0
    while labels[start + count * period : start + (count + 1) * period] == model and len(model) == period:
        count += 1
    return Run(start, period, count if count >= LEAST else 0)
