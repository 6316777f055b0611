"""Questions that all processes ask in the same order: numbered, answered by each, and never waited for in silence."""

from __future__ import annotations

import base64
import pickle
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax

from ..exceptions import MisconfigurationException

# the client has no public name; it is the service that `jax.distributed.initialize` starts
from ..utilities._jax_internals import global_state
from ._places import PLACES
from ._process import process_count, process_index

_PATIENCE_SECONDS = 30 * 60
"""How long a process waits for the others: one may be compiling, or write where it is slow."""

_LOOK_SECONDS = 5
_SILENT_SECONDS = 60


class Questions:
    """The questions of this process; the n-th of all processes is the same one.

    Attributes:
        waited: seconds that this process has waited for answers, all together.
    """

    def __init__(self) -> None:
        self._number = 0
        self._own: list[str] = []
        self.waited = 0.0

    def client(self) -> Any:
        """The coordination service's client."""
        assert global_state.client is not None, "the processes have not met"
        return global_state.client

    def gather(
        self, asked: str, value: Any, of: Sequence[int] | None = None, patience: float | None = _PATIENCE_SECONDS
    ) -> list[Any]:
        """The values of some processes.

        Args:
            asked: what for.
            value: this process's.
            of: whose are waited for; default: all.
            patience: how many seconds to wait at most; None: however long it takes.

        Raises:
            MisconfigurationException: another process asks for something else, or is elsewhere for ever.
            TimeoutError: one did not answer in time.
        """
        number, client = self._number, self.client()
        self._number += 1
        key = f"systolic/asked/{number}/{process_index()}"
        # what is pickled was written by a process of this run, under the same user
        client.key_value_set(key, f"{asked}\n{base64.b64encode(pickle.dumps(value)).decode()}")
        PLACES.own.questions = self._number
        began = time.monotonic()
        answers = [self._answer(number, process, asked, began, patience) for process in of or range(process_count())]
        self.waited += time.monotonic() - began
        self._forget(key, everybody_answered=of is None)
        return answers

    def _answer(self, number: int, process: int, asked: str, began: float, patience: float | None) -> Any:
        told = 0.0
        while True:
            try:
                text = self.client().blocking_key_value_get(f"systolic/asked/{number}/{process}", _LOOK_SECONDS * 1000)
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
            else:
                theirs, _, value = text.partition("\n")
                if theirs != asked:
                    raise _apart(process, asked, theirs)
                return pickle.loads(base64.b64decode(value))
            PLACES.require_that_it_comes(process, number, asked)
            waited = time.monotonic() - began
            if patience is not None and waited > patience:
                raise TimeoutError(
                    f"Process {process} did not come within {patience:g} seconds to where process {process_index()} waits to "
                    f"{asked}. Expected: every process runs the same code. Look at what process {process} said last."
                )
            if waited - told > _SILENT_SECONDS:
                told = waited
                sys.stderr.write(
                    f"systolic: process {process_index()} has waited {waited:.0f} seconds for process {process}, to {asked}.\n"
                )

    def _forget(self, key: str, everybody_answered: bool) -> None:
        """Who has answered this question has read all answers to earlier ones: they would fill the service's memory."""
        if everybody_answered:
            for earlier in self._own:
                self.client().key_value_delete(earlier)
            self._own = []
        self._own.append(key)


def _apart(process: int, asked: str, theirs: str) -> MisconfigurationException:
    return MisconfigurationException(
        f"The processes are in different places: process {process_index()} wants to {asked}, process {process} wants to "
        f"{theirs}. Expected: every process calls the same methods of the Trainer and its strategy, with the same data and the "
        "same settings. Look for `if` on the rank (`trainer.is_global_zero`, `trainer.global_rank`) around what saves, "
        "evaluates or synchronises (all must do it, and systolic writes files in the first process alone), and for values of "
        "the module that differ between processes: a step that reads one is another program."
    )


QUESTIONS = Questions()
"""The questions of this process."""
