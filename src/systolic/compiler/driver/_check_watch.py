"""Raise what the checks inside compiled programs found, without making anybody wait for the devices."""

from __future__ import annotations

import linecache
import time
from collections import deque
from collections.abc import Mapping, Sequence

import jax

from ...exceptions import OutOfRangeError
from ...runtime import Placement, to_host_array
from ...utilities._entries import Entry, see
from ..capture import Number
from ..lowering import Check, StepCheck, is_fine, no_outcome
from ._run_again import RunAgain, named

StepChecks = list[Check | StepCheck]
NamedStep = tuple[Mapping[str, Number], RunAgain | None]
"""The numbers that name a step, and what lets it raise an error of its own; None where it has none."""

_STEPS_BETWEEN_LOOKS = 8
"""Of several processes, which look together; one alone looks by the clock, or when it keeps as many batches."""

_MOST_BATCHES = 2 * _STEPS_BETWEEN_LOOKS
"""Batches that are kept on the devices, besides those that wait, until it is known that their steps raised nothing."""

_SECONDS_BETWEEN_LOOKS = 0.1


class CheckWatch:
    """The outcome of the checks of one engine's steps.

    Programs pass it on from step to step on the devices, and change no state any more once a check has failed. So the
    host need not look at every step: to fetch an array costs it more than a small step does.

    Args:
        placement: the devices.

    Attributes:
        outcome: what the next program takes.
        behind: how many steps had been given to the devices when an error was raised for one, from that one on.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._due = 0.0
        self.behind = 0
        self._forget()

    def _forget(self) -> None:
        self.outcome: jax.Array = self._placement.replicate(no_outcome())
        # a class would cost a microsecond a step
        self._steps: deque[tuple[StepChecks, NamedStep]] = deque()
        self._batches = 0
        self._since = 0
        self._first = 1
        self._asked: jax.Array | None = None

    def add(self, outcome: jax.Array, checks: StepChecks, steps: Sequence[NamedStep]) -> None:
        """Take what a program returned; now and then begins to copy it to the host.

        Args:
            outcome: the outcome of all steps so far.
            checks: what the program checks.
            steps: the steps of the dispatch.
        """
        if not checks:
            return
        self.outcome = outcome
        for step in steps:
            self._steps.append((checks, step))
            self._batches += step[1] is not None
        self._since += len(steps)
        if self._asked is None and self._is_due():
            self._since = 0
            outcome.copy_to_host_async()
            self._asked = outcome

    def _is_due(self) -> bool:
        if self._placement.is_shared:  # each process has a clock of its own, and all have to raise before the same step
            return self._since >= _STEPS_BETWEEN_LOOKS
        now = time.perf_counter()
        if now < self._due and self._batches < _STEPS_BETWEEN_LOOKS:
            return False
        self._due = now + _SECONDS_BETWEEN_LOOKS
        return True

    def look(self) -> None:
        """Raise what was found before the host last asked, when the devices have come so far.

        Does not wait, unless too many batches are kept, or several processes do this together: then for steps that were
        dispatched some time ago.
        """
        if self._asked is None:
            return
        if self._placement.is_shared:
            arrived = self._since >= _STEPS_BETWEEN_LOOKS
        else:
            is_ready: bool = self._asked.is_ready()  # pyright: ignore[reportAttributeAccessIssue]
            arrived = is_ready or self._batches >= _MOST_BATCHES
        if arrived:
            self._examine(self._asked)

    def require_fine(self, outcome: jax.Array, checks: StepChecks, step: NamedStep) -> None:
        """Raise what a program has found that only begins a step; else the step's own one is to come."""
        if not is_fine(outcome):  # host sync: what follows is of values that are not to be had
            self.settle()  # an earlier step's error comes first
            self.add(outcome, checks, [step])
            self.settle()

    def settle(self) -> None:
        """Raise what any step found; waits for all of them."""
        if self._steps:
            self._examine(self.outcome)

    def _examine(self, outcome: jax.Array) -> None:
        self._asked = None
        steps, step, check, word = to_host_array(outcome).tolist()  # host sync: `settle` has to know; else it is there
        if word:
            checks, (numbers, again) = self._steps[step - self._first]
            self.behind = len(self._steps) - (step - self._first)
            # with a bad outcome programs keep the old state for ever: whoever catches the error and goes on needs a good one
            self._forget()
            raise _error(checks[check], word, numbers, again)
        while self._first <= steps:
            _, (_, again) = self._steps.popleft()
            self._batches -= again is not None
            self._first += 1


def _error(check: Check | StepCheck, word: int, step: Mapping[str, Number], again: RunAgain | None) -> Exception:
    if isinstance(check, StepCheck):
        assert again is not None, "steps with conditions of their own can be run again"
        return again.error(check)
    where = f"  used at {_code(check.line)}\n"
    if step:
        where += f"  in the step with {named(step)}\n"
    return OutOfRangeError(
        f"{check.op}: {check.what} out of range. Expected: {check.allowed}. Received: {check.value(word)}.\n{where}"
        "The state on the devices is what it was before this step. Correct the data, or make the table, the number of "
        f"classes or the tensor as large as the data needs.{see(Entry.OUT_OF_RANGE)}"
    )


def _code(line: str) -> str:
    """`file:line: code`."""
    file, _, number = line.rpartition(":")
    return f"{line}: {linecache.getline(file, int(number)).strip()}" if file else "(no line of user code on the stack)"
