"""An error in one process of several: it tells the others, and they end with it.

Left to itself JAX waits at its exit until all processes are there, and these wait for the failed one in a collective of the
devices: for five minutes nobody says anything, then all abort. Here the one that fails writes why into the key-value store of
the coordination service and leaves at once; a thread in each of the others looks there, names it and leaves, too. One that
comes to its end in good order says where, and waits: others may need it, or the service, which lives in process 0.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any

import jax

from ._awaited import AwaitedValues
from ._beats import Beats
from ._last_words import EXIT_CODE, first_is_gone
from ._places import PLACES, ended_alone
from ._touch import Touch

_NAME, _ALL_ENDED = "systolic/failed", "systolic/all ended"
_SECONDS_BETWEEN_LOOKS = 0.5
_SECONDS_BETWEEN_LOOKS_AT_THE_END, _LOOK_MS = 0.1, 1000
_SILENT_SECONDS = 60
_SECONDS_FOR_OTHERS = 2.0
"""How long process 0 stays, in which the coordination service lives: the others could not read why the run ended."""


class FailureWatch:
    """Tells the other processes of an error that ends this one, and ends this one when another has failed.

    Args:
        client: of the coordination service.
        process: the number of this process.
        processes: how many there are.
        host: of the first process.
    """

    def __init__(self, client: Any, process: int, processes: int, host: str) -> None:
        self._client = client
        self._process, self._processes = process, processes
        self._beats = Beats(client, process, processes)
        self._awaited = AwaitedValues()
        self._ended = threading.Event()
        self._touch = Touch(client, process, host)
        self._threads = [
            threading.Thread(target=self._look, name="systolic-failures", daemon=True),
            threading.Thread(target=self._touch.watch, args=(self._gone,), name="systolic-touch", daemon=True),
        ]
        self._excepthook = sys.excepthook
        self._has_told_its_end = False

    def start(self) -> None:
        """From now on errors that nobody catches end all processes."""
        sys.excepthook = self._tell
        try:
            self._beats.beat()
        except jax.errors.JaxRuntimeError:
            if self._process == 0:
                raise
            self._leave_without_first()
        for thread in self._threads:
            thread.start()
        # registered after JAX's own, so run before it: the store is still there when the thread looks for the last time
        atexit.register(self._end)

    def _end(self) -> None:
        try:
            self._wait_for_the_others()
        except jax.errors.JaxRuntimeError:
            if self._process == 0:
                raise
            self._leave_without_first()
        self._ended.set()
        self._touch.end()
        for thread in self._threads:
            thread.join()  # a call of the service that returns while Python ends would abort the process
        self._beats.end()

    def _wait_for_the_others(self) -> None:
        """However long it takes: JAX would wait for five minutes, and then abort what the others are still doing."""
        due = time.monotonic() + _SILENT_SECONDS
        while missing := self._missing():
            if time.monotonic() >= due:
                due += _SILENT_SECONDS
                sys.stderr.write(f"systolic: process {self._process} has come to its end, and waits for {missing}.\n")
                sys.stderr.flush()

    def _missing(self) -> str:
        """Rest that has not come to the end, empty where there is none; the first process asks all, the others ask it."""
        if not self._has_told_its_end:
            if self._awaited.any():
                time.sleep(_SECONDS_BETWEEN_LOOKS_AT_THE_END)
                return "values that it makes together with others"
            PLACES.end(self._client, self._process)
            self._has_told_its_end = True
        if self._process:
            try:
                self._client.blocking_key_value_get(_ALL_ENDED, _LOOK_MS)
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
                return "the others"
            return ""
        ended = PLACES.ended(self._client)
        missing = [str(process) for process in range(self._processes) if process not in ended]
        if missing:
            time.sleep(_SECONDS_BETWEEN_LOOKS_AT_THE_END)
        else:
            self._client.key_value_set(_ALL_ENDED, "")
        return f"{'process' if len(missing) == 1 else 'processes'} {', '.join(missing)}" if missing else ""

    def _tell(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Instead of Python's last words: these, then those to the others, then the end."""
        self._excepthook(kind, error, trace)
        self._fail("".join(traceback.format_exception_only(kind, error)).strip())

    def _fail(self, line: str) -> None:
        try:
            self._client.key_value_set(f"{_NAME}/{self._process}", line)
        except jax.errors.JaxRuntimeError:
            if self._process == 0:
                raise
            self._leave_without_first()  # which may be all that went wrong
        self._leave()

    def _look(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                failed = self._client.key_value_dir_get(_NAME)
                PLACES.tell(self._client, self._process)
                self._beats.beat()
                left_behind = PLACES.left_behind(self._client) or self._left_waiting()
            except jax.errors.JaxRuntimeError:
                if self._process == 0:
                    raise
                self._leave_without_first()
                return
            failed = [(name, line) for name, line in failed if name.rpartition("/")[2] != str(self._process)]
            if failed and not self._ended.is_set():
                name, line = failed[0]
                sys.stderr.write(
                    f"systolic: process {name.rpartition('/')[2]} of this run has failed, and process {self._process} "
                    f"ends with it. Its own output says more:\n{line}\n"
                )
                self._leave()
            if left_behind:
                sys.stderr.write(f"systolic: {left_behind}\n")
                self._fail(left_behind)

    def _left_waiting(self) -> str:
        """An error where values do not come because a process that would have to make them, too, has ended; or nothing."""
        process = self._awaited.missing(PLACES.ended(self._client).keys() - {self._process})
        return "" if process is None else ended_alone(process, f"process {self._process} waits for values that both make")

    def _gone(self, process: int) -> None:
        """A process has ended without a word; the first one tells the others."""
        if process == 0:
            self._leave_without_first()
        elif not self._ended.wait(_SECONDS_BETWEEN_LOOKS):  # what it told before it ended says more
            why = "it ended without a word: it was killed, by somebody or for want of memory, or its host failed"
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # it has told why itself
                self._client.key_value_set(f"{_NAME}/{process}", why)

    def _leave_without_first(self) -> None:
        if not self._ended.is_set():
            sys.stderr.write(first_is_gone(self._process))
            self._leave()

    def _leave(self) -> None:
        if self._process == 0:
            time.sleep(_SECONDS_FOR_OTHERS)
        self._touch.end()
        sys.stdout.flush()
        sys.stderr.flush()
        # what runs at a regular exit waits for the other processes
        os._exit(EXIT_CODE)
