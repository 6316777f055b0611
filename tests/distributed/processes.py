"""Start real processes that meet over the loopback interface, and collect what they print."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
SECONDS = 300  # a limit for hangs


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_processes(
    script: Path, count: int, cores: int, *arguments: str, told: Sequence[Mapping[str, str]] | None = None
) -> list[Any]:
    """Run a script in some processes; each prints one line of JSON as its last one. The first that fails ends all.

    Args:
        told: each process's variables that name the others; default: systolic's own.
    """
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": str(cores),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
    }
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(count)]
        started = [
            subprocess.Popen(
                [sys.executable, str(script), *arguments],
                env=environment | variables,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            for variables, output in zip(told or _told(count), outputs, strict=True)
        ]
        try:
            _wait(started, time.monotonic() + SECONDS)
        finally:
            for process in started:
                process.kill()
                process.wait()
        said = []
        for output in outputs:
            output.seek(0)
            said.append(output.read())
    codes = [process.returncode for process in started]
    assert codes == [0] * count, f"ended with {codes}\n" + "\n\n".join(said)
    return [json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{"))) for text in said]


def _wait(processes: list[subprocess.Popen[bytes]], end: float) -> None:
    while time.monotonic() < end:
        codes = [process.poll() for process in processes]
        if None not in codes or any(codes):
            return
        time.sleep(0.05)


def _told(count: int) -> list[dict[str, str]]:
    if count == 1:
        return [{}]
    shared = {"SYSTOLIC_COORDINATOR": f"127.0.0.1:{free_port()}", "SYSTOLIC_PROCESSES": str(count)}
    return [shared | {"SYSTOLIC_PROCESS": str(index)} for index in range(count)]
