"""Attention that forms the whole matrix of scores although TPUs have a kernel that never does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..compiler import PlainAttention, plain_attention_calls
from ..sharding import make_mesh
from ._advise_time import SOURCE, seconds_of
from ._hlo_analysis import HloAnalysis, user_line
from ._model import Advice, Figure
from ._slices import Slice
from ._step import TracedStep
from ._topology import slice_devices

_TOPIC = "attention"


def advise_attention(step: TracedStep, slice: Slice, analysis: HloAnalysis) -> Iterator[Advice]:
    """Name the calls of attention that take the plain form, what keeps them from the kernel, and what they cost."""
    mesh = make_mesh(slice_devices(slice))
    calls: defaultdict[tuple[str, str], list[PlainAttention]] = defaultdict(list)
    for call in plain_attention_calls(step.captured.graph, mesh):
        calls[call.line, " and ".join(one.cause for one in call.obstacles)].append(call)
    if not calls:
        return
    remedies = dict.fromkeys(one.remedy for same in calls.values() for one in same[0].obstacles)
    text = (
        "Attention takes its plain form here, which forms the whole matrix of scores; the kernel for TPU never does. "
        + " ".join(remedies)
    )
    evidence = [figure for (line, cause), same in calls.items() for figure in _scores(same, line, cause, slice)]
    total = sum(seconds_of(operation, slice.chip) for operation in analysis.operations)
    evidence += [_share(line, total, slice, analysis) for line in dict.fromkeys(line for line, _ in calls)]
    yield Advice(_TOPIC, text, tuple(evidence))


def _scores(same: list[PlainAttention], line: str, cause: str, slice: Slice) -> Iterator[Figure]:
    times = f", {len(same)} times" if len(same) > 1 else ""
    name = f"{same[0].module} ({line}){times}: {cause}; scores of one"
    counted = "captured graph: batch x heads x length x other length / cores"
    yield Figure(_TOPIC, name, same[0].score_bytes / slice.devices, "bytes", counted)


def _share(line: str, total: float, slice: Slice, analysis: HloAnalysis) -> Figure:
    own = sum(seconds_of(operation, slice.chip) for operation in analysis.operations if user_line(operation) == line)
    return Figure(_TOPIC, f"predicted time of {line}", 100 * own / total, "%", SOURCE)
