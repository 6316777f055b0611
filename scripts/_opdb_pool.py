"""Run operators in child processes, so that one that crashes or hangs costs only itself."""

from __future__ import annotations

import json
import queue
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Report = dict[str, Any]

START_SECONDS = 120.0


class _Worker:
    """A child process that checks one operator at a time."""

    def __init__(self, count: int) -> None:
        script = str(Path(__file__).with_name("_opdb_worker.py"))
        self.process = subprocess.Popen(
            [sys.executable, script, str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.fresh = True

    def check(self, name: str, seconds: float) -> Report:
        """The report of one operator; the process is dead afterwards if it crashed or ran too long."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            answered = ready.select(seconds + (START_SECONDS if self.fresh else 0))
        self.fresh = False
        line = self.process.stdout.readline() if answered else ""
        if line:
            return json.loads(line)
        reason = f"crashes the process ({self.process.poll()})" if answered else f"takes more than {seconds:g} s"
        self.stop()
        return {**dict.fromkeys(("passed", "samples"), 0), "name": name, "status": "failed", "backward": False,
                "reasons": [reason], "ops": [], "note": ""}  # fmt: skip

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def check_all(names: Sequence[str], count: int, jobs: int, seconds: float, heard: Callable[[Report], None]) -> list[Report]:
    """Check every operator.

    Args:
        names: operators of the database.
        count: samples per operator.
        jobs: processes.
        seconds: time limit for one operator.
        heard: called with each report, as it comes.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    reports: dict[str, Report] = {}

    def serve() -> None:
        worker = _Worker(count)
        while (name := _next(waiting)) is not None:
            worker = worker if worker.alive else _Worker(count)
            reports[name] = worker.check(name, seconds)
            heard(reports[name])
        worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [reports[name] for name in names]


def _next(waiting: queue.SimpleQueue[str]) -> str | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None
