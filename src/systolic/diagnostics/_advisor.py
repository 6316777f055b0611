"""Warnings about what makes a run slow, once each, with what was measured and where.

While nothing is wrong a step pays for a sum and a comparison: the clock is read by the run's record. The devices are asked
whether they have finished in a few steps only, and never waited for.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..compiler import Compile
from ..runtime import observers
from ._lines import responsible_line

_SECONDS = 2.0
_STEPS = 50
_WAITING_SHARE = 0.3
_WAITING_SECONDS = 1e-3
_READING_SHARE = 0.1
_SHAPES = 4
_TRACES, _TRACED_STEPS = 24, 32
_SHORT_STEP = 500e-6
_SHORT_STEPS = 5000
LOOK_EVERY = 64
_LINES = 50
_OTHERS = "further lines"


class AdviceWarning(UserWarning):
    """Something makes the run slower than it need be."""


@dataclass
class Line:
    """How often a line read a value, and the seconds that the host waited for it."""

    count: int = 0
    seconds: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        self.count += count
        self.seconds += seconds


@dataclass
class _Totals:
    """Since the measurement began; the first step of an epoch and steps that compile are left out."""

    steps: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    looks: int = 0
    idle: int = 0
    lines: dict[str, Line] = field(default_factory=dict)


class Advisor:
    """Judges a training loop by what the run's record tells.

    Args:
        loader: where its batches come from.
        is_idle: tells whether the devices have finished all steps.
        grouped: whether several steps go to the devices in one dispatch already.

    Attributes:
        told: the advice that was given, by its kind.
        reads: the lines of the user's that read values from the devices so far.
    """

    def __init__(self, loader: object, is_idle: Callable[[], bool], grouped: bool = False) -> None:
        self._loader = loader
        self._is_idle = is_idle
        self._grouped = grouped
        self.told: dict[str, str] = {}
        self._totals = _Totals()
        self.reads: dict[str, Line] = {}
        self._reads: dict[str, Line] = {}
        self._number = 0
        self._shapes: list[tuple[int, str]] = []
        self._traced: list[tuple[int, Compile]] = []

    # ---- what the run's record tells

    def begin(self) -> None:
        """Batches begin: from now on reads of values are noted."""
        observers.append(self)

    def end(self) -> None:
        """No more batches come."""
        observers.remove(self)

    def compiled(self, steps: int, new: Sequence[Compile]) -> None:
        """The last of some steps compiled; how long these took says nothing."""
        self._number += steps
        self._reads.clear()
        self._traced = [*self._traced, *((self._number, one) for one in new)][-_TRACES:]
        for one in new:
            if one.is_new_executable and " -> " in one.reason:
                self._shapes.append((self._number, one.reason))
        if len(self._shapes) >= _SHAPES:
            listed = "".join(f"\n  step {number}: {reason}" for number, reason in self._shapes[-_SHAPES:])
            self._warn(
                "recompiling",
                f"The training step was compiled {len(self._shapes)} times more in {self._number} steps, because its arguments "
                f"changed:{listed}\nEvery new shape costs a compilation. Pad the batches in the collate function to a few "
                "fixed sizes, and mask the padding in the loss.",
            )
        elif len(self._traced) == _TRACES and self._number - self._traced[0][0] < _TRACED_STEPS:
            seconds = sum(one.trace_seconds for _, one in self._traced)
            self._warn(
                "tracing",
                f"The training step was traced {_TRACES} times in the last {self._number - self._traced[0][0] + 1} steps, "
                f"{seconds:.1f} s in all: its Python runs again where something that it reads is another one in every step.\n"
                f"  step {self._number}: {self._traced[-1][1].reason}\nFormat numbers of the step by f-strings; keep "
                "values in buffers, and in attributes that the step sets before it reads them (docs/steps.md).",
            )

    def look(self, steps: int, seconds: float, waited: float) -> None:
        """Some steps took so many seconds, of which the loop waited for data."""
        self._number += steps
        totals = self._totals
        totals.steps, totals.seconds, totals.waited = totals.steps + steps, totals.seconds + seconds, totals.waited + waited
        totals.looks += 1
        totals.idle += self._is_idle()
        for line, read in self._reads.items():
            totals.lines.setdefault(line, Line()).add(read.count, read.seconds)
        self._reads.clear()
        if totals.steps >= _STEPS and totals.seconds >= _SECONDS:
            self._judge_waiting(totals)
            self._judge_reading(totals)
        if totals.steps >= _SHORT_STEPS:
            self._judge_length(totals)

    # ---- what the runtime tells

    def sent(self, size: int, began: float, ended: float) -> None:
        """Bytes went to the devices: nothing to say about that."""

    def fetched(self, size: int, began: float, ended: float) -> None:
        """A value came to the host; which line wanted it?"""
        line = responsible_line()
        if not line.startswith("systolic/"):
            self._reads.setdefault(line, Line()).add(1, ended - began)
            self.reads.setdefault(line if line in self.reads or len(self.reads) < _LINES else _OTHERS, Line()).add(
                1, ended - began
            )

    # ---- what is wrong

    def _judge_waiting(self, totals: _Totals) -> None:
        share = totals.waited / totals.seconds
        if share >= _WAITING_SHARE and totals.waited / totals.steps >= _WAITING_SECONDS:
            self._warn(
                "waiting",
                f"Training waited for data {100 * share:.0f}% of the time: {totals.waited:.1f} of {totals.seconds:.1f} s in "
                f"{totals.steps} steps. {_about(self._loader)}",
            )

    def _judge_reading(self, totals: _Totals) -> None:
        for line, entry in totals.lines.items():
            share = entry.seconds / totals.seconds
            if entry.count >= totals.steps / 2 and share >= _READING_SHARE:
                self._warn(
                    "reading",
                    f"{line} reads a value from the devices {entry.count / totals.steps:.1f} times a step, and the host waited "
                    f"{100 * share:.0f}% of the time for it. Until then it cannot start the next step. Log values with "
                    "self.log(...), or read them every 50 steps.",
                )

    def _judge_length(self, totals: _Totals) -> None:
        working = (totals.seconds - totals.waited) / totals.steps
        if not self._grouped and working <= _SHORT_STEP and totals.idle >= 0.9 * totals.looks:
            self._warn(
                "short steps",
                f"A training step takes {1e6 * working:.0f} us, and in {totals.idle} of {totals.looks} looks the devices had "
                "finished before the host came with the next one: they wait for the host. Use larger batches, or "
                "Trainer(steps_per_dispatch=8), which starts several steps at once.",
            )

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self.told:
            self.told[kind] = text
            warnings.warn(f"{text} (Trainer(advice=False) turns such advice off.)", AdviceWarning, stacklevel=2)


def _about(loader: object) -> str:
    """Advice on a loader: where the time probably goes, and what to change."""
    workers = getattr(loader, "num_workers", None)  # loaders may be anything that iterates
    dataset = getattr(loader, "dataset", None)
    method = getattr(type(dataset), "__getitems__", None) or getattr(type(dataset), "__getitem__", None)
    where = ""
    if dataset is not None and inspect.isfunction(method):
        code = method.__code__
        where = f"Samples are made in {code.co_filename}:{code.co_firstlineno} in {method.__qualname__}. "
    more = f"num_workers={workers}" if workers is not None else "no DataLoader"
    return f"{where}The loader has {more}: use more workers (num_workers, persistent_workers=True), or prepare samples ahead."
