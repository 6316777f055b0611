"""`if self.trainer.is_global_zero`, `@rank_zero_only` and names in batches: two processes do together what one does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed.processes import TESTS

SCRIPT = Path(__file__).with_name("asking.py")


def run(folder: Path, processes: int) -> tuple[list[dict[str, Any]], list[list[str]], str]:
    """What each process holds, what each printed besides, and the file."""
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "PYTHONWARNINGS": "ignore"}
    command = ["launch", "--processes", str(processes), "--devices-per-process", str(8 // processes), "--", sys.executable]
    done = subprocess.run(
        [sys.executable, "-m", "systolic", *command, str(SCRIPT), str(folder), str(8 // processes)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        [line.removeprefix(f"[{n}] ") for line in done.stdout.splitlines() if line.startswith(f"[{n}] ")]
        for n in range(processes)
    ]
    held = [json.loads(next(line for line in own if line.startswith("{"))) for own in lines]
    said = [[line for line in own if line.startswith(("shown", "left"))] for own in lines]
    return held, said, (folder / "losses.txt").read_text()


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    (alone,), (said_alone,), file_alone = run(tmp_path / "one", 1)
    held, (said, said_by_other), file = run(tmp_path / "two", 2)
    for one in held:
        assert one["seen"] == alone["seen"]
        assert one["weights"] == pytest.approx(alone["weights"], rel=1e-5)
        assert one["metrics"] == pytest.approx(alone["metrics"], rel=1e-5)
        assert one["traces"] == alone["traces"] <= 10, "of 18 steps, each with other names"
    assert said == said_alone
    assert len(said) == 8
    assert said_by_other == []
    assert file == file_alone
    assert len(file.splitlines()) == 6
