"""Raise what the checks inside compiled programs found, without making anybody wait for the devices."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np

from ..exceptions import OutOfRangeError
from ..runtime._convert import to_host_array
from ..utilities._entries import Entry, see
from ._symbols import Number
from .lowering import Check


@dataclass(frozen=True)
class _Dispatched:
    """The words of one dispatch, still on the devices; `steps` holds the numbers that name each of its steps."""

    words: jax.Array
    checks: Sequence[Check]
    steps: Sequence[Mapping[str, Number]]


class CheckWatch:
    """The outcomes of checks that nobody has seen yet, in the order of the steps."""

    def __init__(self) -> None:
        self._pending: deque[_Dispatched] = deque()

    def add(self, words: list[jax.Array], checks: Sequence[Check], steps: Sequence[Mapping[str, Number]]) -> None:
        """Note what a dispatch will find; begins to copy it to the host.

        Args:
            words: the array of words, with a first dimension for the step where the dispatch held several.
            checks: what each word stands for.
            steps: for each step the numbers that name it.
        """
        for array in words:
            array.copy_to_host_async()
            self._pending.append(_Dispatched(array, checks, steps))

    def look(self) -> None:
        """Raise what finished steps found; does not wait."""
        while self._pending and self._pending[0].words.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
            self._examine(self._pending.popleft())

    def settle(self) -> None:
        """Raise what any step found; waits for all of them."""
        while self._pending:
            self._examine(self._pending.popleft())

    def _examine(self, done: _Dispatched) -> None:
        words = to_host_array(done.words)  # host sync: in `look` the step has run; in `settle` somebody has to know
        if not words.any():
            return
        self._pending.clear()
        step, number = np.argwhere(words.reshape(len(done.steps), -1))[0]
        word = int(words.reshape(len(done.steps), -1)[step, number])
        raise _error(done.checks[number], word, done.steps[step])


def _error(check: Check, word: int, step: Mapping[str, Number]) -> OutOfRangeError:
    where = f"  used at {_code(check.line)}\n"
    if step:
        where += f"  in the step with {', '.join(f'{name} {value}' for name, value in step.items())}\n"
    return OutOfRangeError(
        f"{check.op}: {check.what} out of range. Expected: {check.allowed}. Received: {check.value(word)}.\n{where}"
        "The state on the devices was left without this step. Correct the data, or make the table, the number of classes or "
        f"the tensor as large as the data needs.{see(Entry.OUT_OF_RANGE)}"
    )


def _code(line: str) -> str:
    """`file:line: code`."""
    file, _, number = line.rpartition(":")
    return f"{line}: {linecache.getline(file, int(number)).strip()}" if file else "(no line of user code on the stack)"
