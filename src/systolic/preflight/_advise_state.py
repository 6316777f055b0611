"""A step that does not fit: what each core would hold of the state in other ways to divide it, and how to fetch less of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..compiler import longest_loop
from ..sharding import FullySharded, MeshShape, StateLayout
from ._model import Advice, Figure
from ._report import PreflightReport
from ._slices import Slice, parse_slice, slice_names
from ._step import TracedStep
from ._topology import slice_devices

_TOPIC = "state"
_SHOWN = 3
"""Larger slices that are looked at."""
_SOURCE = "shapes of the captured state, divided"


def advise_state(step: TracedStep, slice: Slice, report: PreflightReport) -> Iterator[Advice]:
    """Say what dividing the state, or dividing it over more cores, leaves on each of them.

    Args:
        step: that does not fit.
        slice: where.
        report: of it.
    """
    memory = report.memory
    own = memory.parameters + memory.optimizer_state + memory.other_state
    here = Figure(_TOPIC, f"{slice.name}: state per core", own, "bytes", "shapes of the captured state")
    divided = _divided(step, slice)
    if divided < own:
        yield Advice(
            _TOPIC,
            'strategy="fsdp" divides parameters, gradients and optimizer state over all cores.',
            (here, Figure(_TOPIC, f"{slice.name}, fsdp: state per core", divided, "bytes", _SOURCE)),
        )
    elif memory.temporaries > own and not step.captured.scan_layers and (layers := longest_loop(step.captured)):
        yield Advice(
            _TOPIC,
            f"Trainer(scan_layers=True) runs {layers} layers as one loop, which fetches the parameters of one after the other. "
            "Without a loop the compiler fetches them as early as it sees room, and here it found no order that fits.",
            (Figure(_TOPIC, "temporaries", memory.temporaries, "bytes", "compiler's refusal, less state and batch"),),
        )
    larger = [(one, _divided(step, one)) for one in itertools.islice(_larger(slice), _SHOWN)]
    if larger:
        figures = [Figure(_TOPIC, f"{one.name}, fsdp: state per core", size, "bytes", _SOURCE) for one, size in larger]
        capacity = Figure(_TOPIC, "capacity", memory.capacity, "bytes", "what the compiler lets programs use")
        yield Advice(
            _TOPIC,
            "On a larger slice each core holds less of the state, and what is left is for activations. With as many samples "
            "per core the global batch grows with the slice.",
            (here, *figures, capacity),
        )


def _divided(step: TracedStep, slice: Slice) -> int:
    shape = MeshShape(fsdp=slice.devices)
    laid = step.with_layout(StateLayout(FullySharded(shape), shape))
    return sum(laid.state_bytes(slice_devices(slice)).values())


def _larger(slice: Slice) -> Iterator[Slice]:
    """Slices of the generation with more chips, each at least twice as many as the one before."""
    chips = slice.chips
    for one in map(parse_slice, slice_names()):
        if one.chip == slice.chip and one.chips >= 2 * chips:
            chips = one.chips
            yield one
