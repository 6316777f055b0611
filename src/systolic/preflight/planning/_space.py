"""Ways to run a step with the same global batch: every slice, strategy, rematerialisation and division of the batch."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...exceptions import MisconfigurationException
from .._slices import Slice, parse_slice, slice_names

_USAGE = "Expected slices and ranges of one generation, such as v5litepod-8..v5litepod-256,v6e-8"


@dataclass(frozen=True)
class Cell:
    """One way to run a step.

    Attributes:
        slice: where it runs.
        strategy: the Trainer's, by name.
        remat: the Trainer's, by name.
        core_batch: samples on each core in one batch, what `DataLoader(batch_size=...)` means.
        accumulation: batches for an update, the Trainer's `accumulate_grad_batches`.
    """

    slice: Slice
    strategy: str
    remat: str
    core_batch: int
    accumulation: int

    def __str__(self) -> str:
        """`v5litepod-8, fsdp, remat none, 16 x 4`: the last are samples per core, and batches for an update."""
        return f"{self.slice.name}, {self.strategy}, remat {self.remat}, {self.core_batch} x {self.accumulation}"


def cells(slices: Sequence[Slice], strategies: Sequence[str], remats: Sequence[str], global_batch: int) -> list[Cell]:
    """Every way whose batch per core, times accumulation, times cores makes the global batch.

    On a single core there is nothing to divide: of the strategies only the first stands there.

    Args:
        slices: where.
        strategies: names.
        remats: names.
        global_batch: samples for an update of the parameters.

    Raises:
        MisconfigurationException: the global batch divides over none of the slices.

    Example:
        >>> [str(cell) for cell in cells([parse_slice("v5litepod-8")], ["ddp"], ["none"], 16)]
        ['v5litepod-8, ddp, remat none, 1 x 2', 'v5litepod-8, ddp, remat none, 2 x 1']
    """
    found = [
        Cell(slice, strategy, remat, size, times)
        for slice in slices
        if global_batch % slice.devices == 0
        for strategy, remat in itertools.product(strategies if slice.devices > 1 else strategies[:1], remats)
        for size, times in _divisions(global_batch // slice.devices)
    ]
    if not found:
        counts = ", ".join(f"{slice.name} ({slice.devices})" for slice in slices)
        raise MisconfigurationException(
            f"--global-batch {global_batch} divides over the cores of none of the slices: {counts}. Expected a multiple of a "
            f"number of cores; {_near(global_batch, min(slice.devices for slice in slices))} would do."
        )
    return found


def _divisions(samples: int) -> Iterator[tuple[int, int]]:
    small = [size for size in range(1, math.isqrt(samples) + 1) if samples % size == 0]
    sizes = dict.fromkeys([*small, *(samples // size for size in reversed(small))])
    return ((size, samples // size) for size in sizes)


def _near(wanted: int, cores: int) -> int:
    return max(1, round(wanted / cores)) * cores


def slices_in(text: str) -> list[Slice]:
    """Slices of a command line: names and topologies, and ranges `a..b` of one generation.

    A range has the slices with a name whose numbers of chips are the first one's times a power of two.

    Raises:
        MisconfigurationException: an unknown slice; names near ones. Or a range that has no slices.

    Example:
        >>> [slice.name for slice in slices_in("v5litepod-8..v5litepod-32,v6e-1")]
        ['v5litepod-8', 'v5litepod-16', 'v5litepod-32', 'v6e-1']
    """
    found: list[Slice] = []
    for word in text.split(","):
        first, dots, last = word.partition("..")
        found += _between(_known(first, text), _known(last, text), word) if dots else [_known(first, text)]
    return list(dict.fromkeys(found))


def _known(name: str, text: str) -> Slice:
    if not name.strip():
        raise MisconfigurationException(f"Invalid value for --slices. {_USAGE}. Received: {text!r}.")
    try:
        return parse_slice(name)
    except ValueError as error:
        raise MisconfigurationException(f"--slices: {error}") from error


def _between(first: Slice, last: Slice, word: str) -> list[Slice]:
    if first.chip != last.chip or first.count != last.count or first.chips > last.chips:
        raise MisconfigurationException(
            f"Invalid range in --slices. Expected two slices of one generation, the smaller one first. Received: {word!r}."
        )
    named = [Slice(one.chip, one.shape, first.count) for one in map(parse_slice, slice_names()) if one.chip == first.chip]
    inside = [one for one in named if first.chips <= one.chips <= last.chips and _is_doubled(first.chips, one.chips)]
    return list(dict.fromkeys(sorted([*inside, first, last], key=lambda one: one.chips)))


def _is_doubled(first: int, chips: int) -> bool:
    return chips % first == 0 and math.log2(chips // first).is_integer()
