"""Ways through a step's Python code: which of them a batch did not go, and how often programs are taken for the wrong one."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence

from ...exceptions import MisconfigurationException
from ..capture import Speculation

_MOST_MISSES = 64
"""A batch that goes no way that the programs found out about is an error of ours, or of random numbers in a condition."""

_STEPS_BEFORE_WARNING = 50
_RATE_OF_WARNING = 0.1


class Misses:
    """Programs that one batch was run under in vain."""

    def __init__(self) -> None:
        self._found: list[Sequence[Speculation]] = []

    def add(self, speculations: Sequence[Speculation], failed: int) -> None:
        """Note a program, and the number of its condition that did not hold."""
        if len(self._found) == _MOST_MISSES:
            raise MisconfigurationException(
                f"A batch was run {_MOST_MISSES} times, and each time a condition came out otherwise than the program before "
                f"it had found.\n  used at {speculations[failed].line}\nDoes the condition depend on random numbers or on "
                "rounding? Use torch.where there, or move it to a callback hook."
            )
        self._found.append(speculations[: failed + 1])

    def exclude(self, speculations: Sequence[Speculation]) -> bool:
        """Whether a program begins with a way that the batch did not go."""
        return any(_way(speculations[: len(missed)]) == _way(missed) for missed in self._found)

    def reason(self) -> str:
        """Why the batch needs a program of its own; empty where it was run under none."""
        return f"a value decides otherwise at {self._found[-1][-1].line}" if self._found else ""

    def forced(self) -> tuple[bool | None, ...]:
        """Answers to the first questions of the batch's trace, as far as they are known; None for a size."""
        known: list[bool | None] = []
        for *held, missed in self._found:
            if len(held) >= len(known) and missed.may_be_forced:
                known = [one.holds if one.may_be_forced else None for one in held] + [not missed.holds]
        return tuple(known)


NO_MISSES = Misses()


class Ways:
    """How often the programs of a step were taken for the wrong one."""

    def __init__(self) -> None:
        self._runs = 0
        self._lines: Counter[str] = Counter()
        self._warned = False

    def note(self, speculations: Sequence[Speculation], failed: int) -> None:
        """Note a run, and the number, from one, of the condition that did not hold; 0 where all did. Warns once."""
        self._runs += 1
        if failed:
            self._lines[speculations[failed - 1].line] += 1
        misses = sum(self._lines.values())
        if self._warned or self._runs < _STEPS_BEFORE_WARNING or misses < _RATE_OF_WARNING * self._runs:
            return
        self._warned = True
        line, often = self._lines.most_common(1)[0]
        warnings.warn(
            f"{misses} of {self._runs} runs of this step were in vain: the step was compiled for one way through its code, and "
            f"the batch went another, so it ran again.\n  decided at {line} ({often} times)\nWhere that is too slow, compute "
            "both ways and choose with torch.where.",
            stacklevel=2,
        )


def _way(speculations: Sequence[Speculation]) -> list[tuple[str, bool]]:
    return [(s.text, s.holds) for s in speculations]
