"""Record of one run, for its report: totals and a bounded number of points, from the host's clock and what the Trainer knows.

Nothing here waits for the devices, and no step is written down alone: a batch costs two looks at the clock and two appended
numbers, which are added up once a second.
"""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..compiler import Compile
from ._advisor import LOOK_EVERY, Advisor
from ._points import StepPoints, ValuePoints

T = TypeVar("T")

ADD_UP_SECONDS = 1.0
_MOST_EVENTS = 50
_STAGES = ("training", "validation", "test", "predict")
_END: Any = object()

SETUP, WAITING, COMPILING = "setup, up to the first batch", "waiting for data", "tracing and compiling"
SAVING, DEVICES = "saving checkpoints", "waiting for the devices at the ends of epochs and evaluations"
"""Names of shares of a run's time, besides the steps of its stages."""


@dataclass(frozen=True)
class Activity:
    """Occupation of the main thread.

    Attributes:
        text: for people, such as "Waiting for data".
        since: when it began, in `time.perf_counter()`.
        expected: how many seconds it took the last time; None where nobody knows.
        is_usual: whether it is what a run does all the time: a step.
    """

    text: str
    since: float
    expected: float | None = None
    is_usual: bool = False


class RunRecord:
    """Deeds of a run, and what its time went to.

    Args:
        ended: the runs before it, as reports have them.

    Attributes:
        ended: these, and this one when it has ended.
        began: `time.perf_counter()` of its first moment.
        started: the same by `time.time()`.
        spent: seconds by what they went to; no second is counted twice.
        advisor: what watches the training loop for advice, where there is one.
        tell: is called about once a second while steps run.
        is_open: whether the run is under way.
    """

    def __init__(self, ended: Iterable[dict[str, Any]] = ()) -> None:
        self.ended = list(ended)
        self.began, self.started = time.perf_counter(), time.time()
        self.spent: dict[str, float] = defaultdict(float)
        self.advisor: Advisor | None = None
        self._since = 0.0  # since when a batch is waited for, in time.perf_counter(); negative: worked on; 0.0: neither
        self._doing: Activity | None = None
        self.tell: Callable[[], None] = _nobody
        self.is_open = True
        self._windows: dict[str, _Window] = {}
        self._values: dict[str, ValuePoints] = {}
        self._memory: dict[str, ValuePoints] = {}
        self._compiles = _Events()
        self._checkpoints = _Events()
        self._due = 0.0
        self._accounted = 0.0  # seconds that went to something with a name, so far

    def __getstate__(self) -> dict[str, Any]:
        """State that is copied and pickled: everything but what belongs to the run that is under way."""
        return {**vars(self), "advisor": None, "tell": _nobody}

    # ---- what the loops tell

    def watched(
        self, stage: str, batches: Iterator[T], compiles: Sequence[Compile], advisor: Advisor | None = None
    ) -> Iterator[T]:
        """The same batches; how long each was waited for and worked on is noted.

        Args:
            stage: "training", "validation", "test" or "predict".
            batches: of one loader, once.
            compiles: the growing list of the compilations of this stage's step.
            advisor: is told what many steps took, and of compilations.
        """
        clock = time.perf_counter
        if not self._windows:
            self.account(SETUP, self.elapsed() - self._accounted)
        window = self._windows.setdefault(stage, _Window())
        took, waits = window.times.append, window.waits.append
        known, works = len(compiles), False
        got = accounted = mark = waited = 0.0
        steps = 0
        if advisor is not None:
            self.advisor = advisor
            advisor.begin()
        asked = self._since = clock()
        try:
            while (batch := next(batches, _END)) is not _END:
                got = clock()
                self._since = -got
                if mark:
                    waited += got - asked
                else:  # the wait for an epoch's first batch is none of the advisor's
                    mark = got
                accounted, works = self._accounted, True
                yield batch
                ended, works = clock(), False
                if len(compiles) == known:
                    step = ended - asked - (self._accounted - accounted)
                    took(step)
                    waits(got - asked)
                    self._accounted += step
                    steps += 1
                    if steps == LOOK_EVERY and advisor is not None:
                        advisor.look(steps, ended - mark, waited)
                        mark, waited, steps = ended, 0.0, 0
                else:  # such a step is no step like the others
                    self._compiled(stage, window.points.count + len(window.times) + window.compiled, compiles[known:])
                    if advisor is not None:
                        advisor.compiled(steps + 1, compiles[known:])
                    mark, waited, steps = ended, 0.0, 0
                    known, window.compiled = len(compiles), window.compiled + 1
                    self.account(f"{stage} steps", ended - got - (self._accounted - accounted))
                    self.account(WAITING, got - asked)
                if ended >= self._due:
                    self._add_up()
                    self.tell()
                    ended = clock()
                    self._due = ended + ADD_UP_SECONDS
                asked = self._since = ended
            self.account(WAITING, clock() - asked)  # until the loader said that there is no more
            if steps and advisor is not None:
                advisor.look(steps, asked - mark, waited)
        finally:
            self._since = 0.0
            if advisor is not None:
                advisor.end()
            if works and self.is_open:  # the loop needs no further batch
                step = clock() - asked - (self._accounted - accounted)
                took(step)
                waits(got - asked)
                self._accounted += step
            self._add_up()
            if isinstance(batches, Generator):
                batches.close()

    def _add_up(self) -> None:
        for stage, window in self._windows.items():
            if window.times:
                window.points.add(window.times, window.waits)
                waited = sum(window.waits)
                self.spent[WAITING] += waited
                self.spent[f"{stage} steps"] += sum(window.times) - waited
                window.times.clear()
                window.waits.clear()

    def account(self, name: str, seconds: float) -> None:
        """Note what seconds went to that nothing else is told of."""
        self.spent[name] += max(seconds, 0.0)
        self._accounted += max(seconds, 0.0)

    @contextlib.contextmanager
    def within(self, name: str, text: str = "") -> Iterator[None]:
        """Inside, time that goes to nothing with a name of its own goes to this; `text` says what is being done."""
        began, before, doing = time.perf_counter(), self._accounted, self._doing
        if text:
            self._doing = Activity(text, began)
        try:
            yield
        finally:
            self._doing = doing
            self.account(name, time.perf_counter() - began - (self._accounted - before))

    def begin(self, text: str, expected: float | None) -> None:
        """Something that takes a while begins, or goes on as something else."""
        self._doing = Activity(text, time.perf_counter(), expected)

    def done(self) -> None:
        """End what `begin` began."""
        self._doing = None

    @property
    def activity(self) -> Activity | None:
        """Occupation of the main thread, for other threads; None where nobody can tell."""
        doing, since = self._doing, self._since  # read once: they change meanwhile
        if doing is not None:
            return doing
        if since > 0:
            return Activity("Waiting for data", since)
        return Activity("Running a step", -since, is_usual=True) if since else None

    def _compiled(self, stage: str, step: int, compiles: Sequence[Compile]) -> None:
        for one in compiles:
            self.account(COMPILING, one.trace_seconds + one.compile_seconds)
            self._compiles.add(
                {
                    "at": self.elapsed(),
                    "stage": stage,
                    "step": step,
                    "reason": one.reason,
                    "trace": one.trace_seconds,
                    "compile": one.compile_seconds,
                    "saved": one.saved_seconds,
                    "is_new": one.is_new_executable,
                    "effects": list(one.effects),
                    "memory": None if one.memory is None else vars(one.memory),
                },
                one.trace_seconds + one.compile_seconds,
            )

    def saved(self, path: str, step: int, seconds: float, size: int | None, background: bool) -> None:
        """A checkpoint was saved, or is being written by now.

        Args:
            path: where to.
            step: optimizer steps that it holds.
            seconds: how long training stood still for it.
            size: bytes of its file; None where that is not known.
            background: whether it is written while training goes on.
        """
        event = {"at": self.elapsed(), "path": path, "step": step, "bytes": size, "background": background}
        self._checkpoints.add({**event, "seconds": seconds}, seconds)

    def logged(self, values: Mapping[str, float], step: int) -> None:
        """Values went to the loggers."""
        for name, value in values.items():
            if name not in self._values:
                self._values[name] = ValuePoints()
            self._values[name].add(step, value)

    def memory(self, found: Mapping[str, float]) -> None:
        """Bytes that are in use now, by name."""
        for name, value in found.items():
            self._memory.setdefault(name, ValuePoints()).add(self.elapsed(), value)

    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    def _has_steps(self, stage: str) -> bool:
        return stage in self._windows and self._windows[stage].points.count > 0

    # ---- what reports read

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data; durations in seconds."""
        self._add_up()
        advisor = self.advisor
        reads = advisor.reads if advisor is not None else None
        return {
            "started": self.started,
            "seconds": self.elapsed(),
            "spent": dict(self.spent),
            "steps": {stage: self._windows[stage].points.as_dict() for stage in _STAGES if self._has_steps(stage)},
            "values": {name: points.as_dict() for name, points in self._values.items()},
            "memory": {name: points.as_dict() for name, points in self._memory.items()},
            "compiles": self._compiles.as_dict(),
            "checkpoints": self._checkpoints.as_dict(),
            "reads": None if reads is None else {line: [one.count, one.seconds] for line, one in reads.items()},
            "advice": [] if advisor is None else list(advisor.told.values()),
        }


@dataclass
class _Window:
    """Steps of a stage: those that were added up, durations and waits for data of the newest, how many compiled."""

    points: StepPoints = field(default_factory=StepPoints)
    times: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    compiled: int = 0


class _Events:
    """The first and the newest events of a kind, how many there were, and what they took together."""

    def __init__(self) -> None:
        self._first: list[dict[str, Any]] = []
        self._newest: list[dict[str, Any]] = []
        self._count, self._seconds = 0, 0.0

    def add(self, event: dict[str, Any], seconds: float) -> None:
        self._count += 1
        self._seconds += seconds
        (self._first if len(self._first) < _MOST_EVENTS else self._newest).append(event)
        del self._newest[:-_MOST_EVENTS]

    def as_dict(self) -> dict[str, Any]:
        return {"count": self._count, "seconds": self._seconds, "events": [*self._first, *self._newest]}


def _nobody() -> None:
    pass
