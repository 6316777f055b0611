"""Dimensions whose sizes values decide, and places in them; see `_bounded_sizes.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

Dims = tuple["Size | None", ...]
"""By dimension of a tensor: the size that values decide; None for one that is always the same."""

Numbers = tuple[int, ...]
"""A number in all traces, the newest one first."""


class NotBoundedError(Exception):
    """The graph cannot be written for all sizes."""


@dataclass(eq=False)
class Size:
    """How many elements a mask selects, or several masks that selected as many as each other in all traces; or a value.

    Or a sum of these.

    Attributes:
        bound: how many it can select.
        numbers: how many it selected.
        mask: the first mask, in the written graph, with nothing selected of what does not count; None of a value and of a sum.
        count: the number in the written graph.
        outside: which of `bound` elements are none of the first `count`.
        last: by element its place, or that of the last one which counts.
        fewest: how many a mask selects at least in batches that the graph holds for.
        most: how many there are at most, as far as the graph needs it; None for `bound`.
        added: of a sum: what is always the same of it, and the sizes that are added, with how often each is.
        inner: where parts of a sum end, which is never behind its own end.
        part: of a dimension that those before it are joined with, which has what does not count behind each of its parts: the
            bound of a part; 0 where all that counts comes first.
    """

    bound: int
    numbers: Numbers
    mask: fx.Node | None = None
    count: fx.Node | None = None
    outside: fx.Node | None = None
    last: fx.Node | None = None
    fewest: int = 0
    most: int | None = None
    added: tuple[int, tuple[tuple[Size, int], ...]] | None = None
    inner: set[Numbers] = field(default_factory=set)
    part: int = 0

    @property
    def least(self) -> int:
        """How many there are at least, of a sum, too."""
        if self.added is None:
            return self.fewest
        fixed, added = self.added
        return fixed + sum(one.least * often for one, often in added)


@dataclass(frozen=True)
class Place:
    """A place in a dimension: so many behind its beginning, or behind the end of what counts of a size."""

    base: Size | None
    offset: int


@dataclass(frozen=True)
class SumTest:
    """A comparison of a sum of sizes with zero.

    Attributes:
        parts: sizes that masks select, and how often each is taken.
        offset: what is added.
        comparison: the name of Python's function, such as "le".
    """

    parts: tuple[tuple[Numbers, int], ...]
    offset: int
    comparison: str


def factor(numbers: Sequence[float], counts: Numbers) -> int | None:
    """The whole number by which counts are multiplied in all traces; None where there is none."""
    times = {one / count if count else 0 for one, count in zip(numbers, counts, strict=True)}
    factor = times.pop()
    return int(factor) if not times and factor == int(factor) and factor > 0 else None


def plain(value: Any) -> Any:
    """The dimensions of a value that has nothing to do with sizes."""
    if isinstance(value, torch.Tensor):
        return (None,) * value.dim()
    return [plain(one) for one in value] if isinstance(value, list | tuple) else ()


def in_bounds(value: Any, dims: Any) -> Any:
    """A fake tensor, or a list of them, in the shape of the new graph."""
    if isinstance(value, list | tuple) and isinstance(dims, list):
        return type(value)(in_bounds(one, of_one) for one, of_one in zip(value, dims, strict=True))
    if not isinstance(value, torch.Tensor) or all(size is None for size in dims):
        return value
    return value.new_empty([n if size is None else size.bound for n, size in zip(value.shape, dims, strict=True)])
