"""Breakdown of the predicted time: lines of the user's code, gathers and scatters, changes of layout."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from ..hardware import Chip
from ._hlo_analysis import HloAnalysis, Operation, module_of, user_line
from ._model import Advice, Figure

_LINES = 5
_MUCH = 0.1
"""Share of the predicted time from which on gathers, scatters and layout changes are worth a change."""

SOURCE = "optimized program: estimated_cycles / clock; without an estimate, bytes / bandwidth"


def advise_time(analysis: HloAnalysis, chip: Chip) -> Iterator[Advice]:
    """Name the places at which a change would matter most."""
    yield from _lines(analysis, chip)
    yield from _kind(
        analysis,
        chip,
        "gather and scatter",
        _gathers,
        "Gathers and scatters take {share:.0%} of the predicted time; the matrix unit has no part in them. Look up small "
        "tables with a product with one-hot rows, use slices where the indices are regular, and sort or merge indices that "
        "repeat.",
    )
    yield from _kind(
        analysis,
        chip,
        "layout",
        _copies,
        "Copies that only change a layout take {share:.0%} of the predicted time. Fewer transposes and reshapes between "
        "layers, or dimensions in the order in which the next product takes them, avoid them.",
    )


def _gathers(operation: Operation) -> bool:
    return not {operation.opcode, *operation.inner_opcodes}.isdisjoint({"gather", "scatter"})


def _copies(operation: Operation) -> bool:
    return operation.opcode in ("copy", "transpose")


def _lines(analysis: HloAnalysis, chip: Chip) -> Iterator[Advice]:
    total = _seconds(analysis.operations, chip)
    places = _by_place(analysis.operations, chip)
    if places:
        share = sum(seconds for _, seconds in places) / total
        text = f"{share:.0%} of the predicted time that is no communication comes from these places: begin there."
        yield Advice("time", text, _shares("time", places, total))


def _kind(analysis: HloAnalysis, chip: Chip, topic: str, belongs: Callable[[Operation], bool], text: str) -> Iterator[Advice]:
    found = [operation for operation in analysis.operations if belongs(operation)]
    total, seconds = _seconds(analysis.operations, chip), _seconds(found, chip)
    if seconds > _MUCH * total:
        places = _by_place(found, chip)
        yield Advice(topic, text.format(share=seconds / total), _shares(topic, places, total))


def _shares(topic: str, places: list[tuple[str, float]], total: float) -> tuple[Figure, ...]:
    return tuple(Figure(topic, place, 100 * seconds / total, "%", SOURCE) for place, seconds in places)


def _seconds(operations: Iterable[Operation], chip: Chip) -> float:
    return sum(seconds_of(operation, chip) for operation in operations)


def seconds_of(operation: Operation, chip: Chip) -> float:
    """The compiler's estimate for an operation in a step; without one, what its bytes take."""
    if operation.cycles is not None:
        return operation.total_cycles / chip.clock_hz
    return operation.hbm_bytes * operation.times / chip.bandwidth_per_device


def _by_place(operations: Iterable[Operation], chip: Chip) -> list[tuple[str, float]]:
    """The places that take longest, with their seconds; what names neither module nor line is left out."""
    found: defaultdict[str, float] = defaultdict(float)
    for operation in operations:
        module, line = module_of(operation), user_line(operation)
        place = f"{module} ({line})" if module and line else module or line
        seconds = seconds_of(operation, chip)
        if place and seconds:
            found[place] += seconds
    return sorted(found.items(), key=lambda pair: pair[1], reverse=True)[:_LINES]
