"""Signs of life: who has died is named before JAX, which notices it by its own ones, ends all."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Any

import jax

_NAME, _LOST, _ENDED = "systolic/alive", "systolic/lost", "ended"
_SECONDS_BETWEEN_BEATS = 3.0
_SILENT_SECONDS = 20.0
"""A host that compiles on all of its cores is late; JAX's own limit, after which all end, is later than this one."""


class Beats:
    """Tells that this process lives; the first process watches all, and names to all who says nothing more.

    A line, no error: Python may be held up where JAX's own signs of life are not.

    Args:
        client: of the coordination service.
        process: the number of this process.
        processes: how many there are.
    """

    def __init__(self, client: Any, process: int, processes: int) -> None:
        self._client, self._process, self._processes = client, process, processes
        self._count, self._due = 0, 0.0
        self._seen: dict[str, tuple[str, float]] = {}
        self._named: set[str] = set()

    def beat(self) -> None:
        """Tell that this process lives, where it is time to; to be called often."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due, self._count = now + _SECONDS_BETWEEN_BEATS, self._count + 1
        self._client.key_value_set(f"{_NAME}/{self._process}", str(self._count), True)
        if self._process == 0:
            self._watch(now)
        self._read()

    def end(self) -> None:
        """This process ends in good order, and says nothing more."""
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # process 0 may be gone before
            self._client.key_value_set(f"{_NAME}/{self._process}", _ENDED, True)

    def _watch(self, now: float) -> None:
        told = {name.rpartition("/")[2]: text for name, text in self._client.key_value_dir_get(_NAME)}
        for process in map(str, range(self._processes)):  # also who has never told anything: it may have died at once
            text = told.get(process, "")
            before, since = self._seen.get(process, ("", now))
            self._seen[process] = (text, now if text != before else since)
            if text != _ENDED and text == before and now - since >= _SILENT_SECONDS:
                self._client.key_value_set(f"{_LOST}/{process}", str(int(now - since)), True)

    def _read(self) -> None:
        for name, seconds in self._client.key_value_dir_get(_LOST):
            process = name.rpartition("/")[2]
            if process in self._named:
                continue
            self._named.add(process)
            sys.stderr.write(
                f"systolic: process {process} of this run has given no sign of life for {seconds} seconds: it was killed, or "
                "its host or the network failed. If it stays away, all processes end in less than half a minute; start the "
                "same command again, and ckpt_path='last' goes on from the last save.\n"
            )
            sys.stderr.flush()
