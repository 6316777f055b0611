"""A process that dies is named by the others, which end within a minute; the same command ends with the same weights."""

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
from distributed.processes import TESTS, free_port

SCRIPT = Path(__file__).with_name("disturbed.py")
LIMIT = 60.0
SEED = 20261123


def start(directory: Path, who: int, moment: str) -> list[subprocess.Popen[bytes]]:
    """Start two processes that nobody launches together: they have to notice by themselves."""
    environment = os.environ | {
        "JAX_NUM_CPU_DEVICES": "2",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
        "PYTHONWARNINGS": "ignore",
        "SYSTOLIC_COORDINATOR": f"127.0.0.1:{free_port()}",
        "SYSTOLIC_PROCESSES": "2",
    }
    started: list[subprocess.Popen[bytes]] = []
    for index in range(2):
        with (directory / f"said-{index}").open("w") as said:
            started.append(
                subprocess.Popen(
                    [sys.executable, str(SCRIPT), str(directory), str(who), moment],
                    env=environment | {"SYSTOLIC_PROCESS": str(index)},
                    stdout=said,
                    stderr=subprocess.STDOUT,
                )
            )
    return started


def wait(started: list[subprocess.Popen[bytes]], seconds: float) -> list[int]:
    try:
        return [process.wait(seconds) for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def said(directory: Path, process: int) -> str:
    return (directory / f"said-{process}").read_text()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    directory = tmp_path_factory.mktemp("undisturbed")
    assert wait(start(directory, 0, "never"), 300) == [0, 0], said(directory, 0)
    return torch.load(directory / "end.pt", weights_only=True)


def require_same_end(directory: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    assert wait(start(directory, 0, "never"), 300) == [0, 0], said(directory, 0)
    end = torch.load(directory / "end.pt", weights_only=True)
    assert all(torch.equal(end[name], value) for name, value in undisturbed.items())


# promise 12: L#14343, a run that was killed goes on
# promise 25: X#7974, a process that dies is named, and nobody waits for ever
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["connection", "meeting", pytest.param("step", marks=pytest.mark.tables), "save", "end"])
@pytest.mark.parametrize("who", [0, 1])
def test_who_dies_is_named_and_the_run_goes_on(
    who: int, moment: str, tmp_path: Path, undisturbed: dict[str, torch.Tensor]
) -> None:
    started = start(tmp_path, who, moment)
    assert started[who].wait(200) == -signal.SIGKILL
    died = time.monotonic()
    codes = wait(started, LIMIT)
    assert time.monotonic() - died < LIMIT
    assert codes[1 - who] != 0
    assert f"process {who} of this run" in said(tmp_path, 1 - who)
    require_same_end(tmp_path, undisturbed)


# promise 12: L#14343, killed at twenty moments that nobody chose
@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_random_moments(number: int, tmp_path: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    generator = random.Random(SEED + number)
    who, seconds = generator.randrange(2), generator.uniform(0.0, 12.0)
    started = start(tmp_path, who, "never")
    while "peer ranks" not in said(tmp_path, 0) and started[0].poll() is None:  # they have met
        time.sleep(0.05)
    time.sleep(seconds)
    started[who].kill()
    died = time.monotonic()
    codes = wait(started, LIMIT)
    assert time.monotonic() - died < LIMIT
    if codes[1 - who]:
        assert f"process {who} of this run" in said(tmp_path, 1 - who)
    require_same_end(tmp_path, undisturbed)


@pytest.mark.tables(every=3)
@pytest.mark.parametrize("moment", ["start", "step"])
def test_launch_starts_again(moment: str, tmp_path: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    """The launcher names who died, ends the other at once, and starts both again."""
    command = [sys.executable, "-m", "systolic", "launch", "--processes", "2", "--devices-per-process", "2", "--max-restarts"]
    run = subprocess.run(
        [*command, "1", "--", sys.executable, str(SCRIPT), str(tmp_path), "1", moment],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    assert run.returncode == 0, run.stdout
    assert "systolic launch: process 1 ended first, with signal 9 (SIGKILL):" in run.stdout
    assert "systolic launch: starting again (1 of 1)" in run.stderr
    end = torch.load(tmp_path / "end.pt", weights_only=True)
    assert all(torch.equal(end[name], value) for name, value in undisturbed.items())


# promise 12: L#14343, a host that is taken away
@pytest.mark.tables(every=3)
@pytest.mark.parametrize("who", [0, 1])
def test_sigterm_to_one_process_saves_in_all(who: int, tmp_path: Path, undisturbed: dict[str, torch.Tensor]) -> None:
    started = start(tmp_path, who, "never")
    while not (tmp_path / "kept" / "last.ckpt").exists() and started[0].poll() is None:
        time.sleep(0.05)
    saved = (tmp_path / "kept" / "last.ckpt").stat().st_mtime
    started[who].send_signal(signal.SIGTERM)
    assert wait(started, LIMIT) == [143, 143], said(tmp_path, who)
    assert (tmp_path / "kept" / "last.ckpt").stat().st_mtime >= saved
    assert not (tmp_path / "end.pt").exists()
    require_same_end(tmp_path, undisturbed)
