"""Places of the processes, told to each other in the background: who waits can tell whether the other will ever come."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..exceptions import MisconfigurationException
from ..utilities._jax_internals import global_state

_NAME, _ENDED = "systolic/at", "systolic/ended"


def ended_alone(process: int, others: str, when: str = "") -> str:
    """An error about a process that has ended and is needed.

    Args:
        process: its number.
        others: what who does without it.
        when: it ended, with a space before.
    """
    return (
        f"Process {process} of this run has ended{when}, and {others}. Expected: every process runs the whole script. Look for "
        f"sys.exit(), a return or an exception that is caught in process {process} alone."
    )


class Place:
    """Place of a process.

    Attributes:
        questions: how many it has asked.
        steps: how many programs over the devices of all processes it has dispatched.
        newest: the newest of them, with the numbers that it took from the host.
    """

    def __init__(self, questions: int = 0, steps: int = 0) -> None:
        self.questions, self.steps = questions, steps
        self.newest: tuple[str, Sequence[object]] = ("", ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and (self.questions, self.steps) == (other.questions, other.steps)

    __hash__ = None  # type: ignore[assignment]  # it changes


class Places:
    """Places of the processes.

    Attributes:
        own: where this one is; counted where it happens, told by a thread.
    """

    def __init__(self) -> None:
        self.own = Place()
        self._told = Place()

    def tell(self, client: Any, process: int) -> None:
        """Tell the others where this process is, where that has changed.

        Args:
            client: of the coordination service.
            process: the number of this process.
        """
        now = Place(self.own.questions, self.own.steps)
        if now != self._told:
            self._told = now
            client.key_value_set(f"{_NAME}/{process}", f"{now.questions} {now.steps}", True)

    def end(self, client: Any, process: int) -> None:
        """Tell the others that this process has come to its end, and where.

        Args:
            client: of the coordination service.
            process: the number of this process.
        """
        client.key_value_set(f"{_ENDED}/{process}", f"{self.own.questions} {self.own.steps}")

    def ended(self, client: Any) -> dict[int, tuple[int, int]]:
        """The processes that have come to their end: how many questions each had asked, and steps dispatched.

        Args:
            client: of the coordination service.
        """
        return _by_process(client, _ENDED)

    def require_that_it_comes(self, process: int, question: int, asked: str) -> None:
        """Refuse to wait for a process that will not come: it has ended, or waits in a step that this one has not come to.

        Args:
            process: who is waited for.
            question: the number of the question that it has not answered.
            asked: what for.

        Raises:
            MisconfigurationException: it has ended, or has dispatched a step that this process has not.
        """
        if self.ended(global_state.client).get(process, (question + 1, 0))[0] <= question:
            raise MisconfigurationException(ended_alone(process, f"process {global_state.process_id} wants to {asked} with it"))
        questions, steps = _by_process(global_state.client, _NAME).get(process, (0, 0))
        if questions <= question and steps > self.own.steps:
            raise MisconfigurationException(
                f"The processes are in different places: process {global_state.process_id} wants to {asked} after "
                f"{self.own.steps} dispatched steps, and process {process} waits in step {steps} for all others. Expected: "
                "the same steps, of the same shapes, in every process. Look for an `if` on the rank in a step or a hook, and "
                "for values of the module that differ between processes: each is part of the program."
            )

    def left_behind(self, client: Any) -> str:
        """An error where this process has dispatched a step for which another one, which has ended, will not come; or nothing.

        Args:
            client: of the coordination service.
        """
        for process, (_, steps) in self.ended(client).items():
            if steps < self.own.steps:
                others = f"others wait for it in step {self.own.steps}"
                return ended_alone(process, others, f" after {steps} dispatched steps")
        return ""


def _by_process(client: Any, name: str) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for key, place in client.key_value_dir_get(name):
        questions, steps = map(int, place.split())
        found[int(key.rpartition("/")[2])] = questions, steps
    return found


PLACES = Places()
"""The places of the processes, as this one knows them."""


def counted_step(program: str, numbers: Sequence[object]) -> None:
    """Note that this process dispatches a program over the devices of all.

    Args:
        program: tells it from others.
        numbers: what it takes from the host besides tensors.
    """
    PLACES.own.steps += 1
    PLACES.own.newest = (program, numbers)


def newest_step() -> dict[str, str]:
    """The newest program that this process has dispatched, and its numbers, in few words."""
    program, numbers = PLACES.own.newest
    shown = repr(list(numbers))
    return {
        "the number of dispatched steps": str(PLACES.own.steps),
        "the program": hashlib.sha1(program.encode()).hexdigest()[:12],
        "its numbers": shown if len(numbers) <= 8 else hashlib.sha1(shown.encode()).hexdigest()[:12],
    }
