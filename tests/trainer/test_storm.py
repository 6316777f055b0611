"""Processes that are killed again and again end as one that was left alone."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from trainer.resuming import assert_same

import systolic.checkpoint

SCRIPT = Path(__file__).with_name("storm_script.py")


def start(path: Path, kind: str, epochs: int) -> subprocess.Popen[bytes]:
    """Start or go on; workers are in the process's own group."""
    path.mkdir(exist_ok=True)
    places = [str(SCRIPT.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONWARNINGS": "ignore", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), str(path), kind, str(epochs)]
    with open(path / "output.txt", "ab") as output:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)


def kill_when_it_has_saved(process: subprocess.Popen[bytes], path: Path, number: signal.Signals, chance: random.Random) -> bool:
    """Kill a process a moment after it wrote a checkpoint of its own; False where it came to its end before."""
    last, began = path / "kept" / "last.ckpt", time.time()
    while process.poll() is None and not (last.exists() and last.stat().st_mtime > began):
        time.sleep(0.005)
    time.sleep(chance.random() * 0.2)
    if process.poll() is not None:
        return False
    if number is signal.SIGKILL:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    return process.wait(60) in (-signal.SIGKILL, 143)


def storm(path: Path, kind: str, kills: int, epochs: int, number: signal.Signals) -> None:
    """Kill, look at every file, start again; compare the ends."""
    undisturbed, chance, killed = start(path / "whole", kind, epochs), random.Random(5), 0
    assert undisturbed.wait(600) == 0, (path / "whole/output.txt").read_text()
    while not (path / "killed/end.pt").exists():
        process = start(path / "killed", kind, epochs)
        if killed < kills:
            killed += kill_when_it_has_saved(process, path / "killed", number, chance)
            for file in (path / "killed/kept").glob("*.ckpt"):
                systolic.checkpoint.load(file)
        else:
            assert process.wait(600) == 0, (path / "killed/output.txt").read_text()
    assert killed == kills, (path / "killed/output.txt").read_text()
    one, other = (torch.load(path / name / "end.pt", weights_only=True) for name in ("whole", "killed"))
    assert_same(one, other, "storm")


@pytest.mark.tables
def test_three_kills_leave_no_trace(tmp_path: Path) -> None:
    storm(tmp_path, "eager", 3, 8, signal.SIGKILL)


@pytest.mark.tables
def test_a_termination_leaves_no_trace(tmp_path: Path) -> None:
    storm(tmp_path, "eager", 1, 6, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_storm_of_kills_leaves_no_trace(number: signal.Signals, tmp_path: Path) -> None:
    storm(tmp_path, "compiled", 200, 240, number)
