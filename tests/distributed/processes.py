"""Start real processes that meet over the loopback interface, and collect what they print."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
SECONDS = 400  # a limit for hangs


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_processes(script: Path, count: int, cores: int, *arguments: str) -> list[Any]:
    """Run a script in some processes; each prints one line of JSON as its last one."""
    environment = os.environ | {
        "SYSTOLIC_COORDINATOR": f"127.0.0.1:{free_port()}",
        "SYSTOLIC_PROCESSES": str(count),
        "JAX_NUM_CPU_DEVICES": str(cores),
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
    }
    started = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=environment | {"SYSTOLIC_PROCESS": str(index)} if count > 1 else _alone(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    try:
        results = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    for process, (out, errors) in zip(started, results, strict=True):
        assert process.returncode == 0, f"{out}\n{errors}"
    return [json.loads(out.splitlines()[-1]) for out, _ in results]


def _alone(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("SYSTOLIC_")} | {
        "SYSTOLIC_CACHE_DIR": environment["SYSTOLIC_CACHE_DIR"]
    }
