"""Places of the processes, told to each other in the background: who waits can tell whether the other will ever come."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..exceptions import MisconfigurationException
from ..utilities._jax_internals import global_state

_NAME = "systolic/at"


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

    def require_no_step_ahead(self, process: int, question: int, asked: str) -> None:
        """Refuse to wait for a process that waits for this one: in a step that this one has not come to.

        Args:
            process: who is waited for.
            question: the number of the question that it has not answered.
            asked: what for.

        Raises:
            MisconfigurationException: it has dispatched a step that this process has not.
        """
        told = dict(global_state.client.key_value_dir_get(_NAME)) if global_state.client is not None else {}
        place = next((value for name, value in told.items() if name.rpartition("/")[2] == str(process)), None)
        if place is None:
            return
        questions, steps = map(int, place.split())
        if questions <= question and steps > self.own.steps:
            raise MisconfigurationException(
                f"The processes are in different places: process {global_state.process_id} wants to {asked} after "
                f"{self.own.steps} dispatched steps, and process {process} waits in step {steps} for all others. Expected: "
                "the same steps, of the same shapes, in every process. Look for an `if` on the rank in a step or a hook, and "
                "for values of the module that differ between processes: each is part of the program."
            )


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
