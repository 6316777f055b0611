"""Ending the processes that hold the chips: real processes, real signals."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from doctor.holding import held, make_machine

from systolic.cli import main
from systolic.doctor import free_chips
from systolic.hardware._chips import Holder, find_holders

NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can start another user's process")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    return make_machine(tmp_path, "dev/accel0")


def yes(holders: Sequence[Holder]) -> bool:
    return True


def test_a_process_ends_when_asked(machine: Path) -> None:
    with held(machine / "dev/accel0") as process:
        (outcome,) = free_chips(find_holders(machine).holders, yes)
        assert (outcome.ended, outcome.text) == (True, "ended")
        assert process.wait(5) == -signal.SIGTERM


def test_one_that_does_not_is_killed(machine: Path) -> None:
    with held(machine / "dev/accel0", stubborn=True) as process:
        (outcome,) = free_chips(find_holders(machine).holders, yes, patience_seconds=0.2)
        assert outcome.text == "killed: it did not end when asked"
        assert process.wait(5) == -signal.SIGKILL


def test_not_confirmed_is_left_alone(machine: Path) -> None:
    asked: list[int] = []
    with held(machine / "dev/accel0") as process:
        (outcome,) = free_chips(
            find_holders(machine).holders, lambda holders: asked.extend(h.process.pid for h in holders) or False
        )
        assert asked == [process.pid]
        assert not outcome.ended
        assert process.poll() is None


@pytest.mark.tables
def test_the_process_that_started_the_doctor_is_left_alone(machine: Path) -> None:
    """A notebook's kernel that holds the chips and runs `!systolic doctor --free --yes`."""
    code = (
        "import sys, subprocess\nchip = open(sys.argv[1])\n"
        "child = 'import sys; from systolic.cli import main; sys.exit(main(sys.argv[1:]))'\n"
        "run = subprocess.run([sys.executable, '-c', child, 'doctor', '--free', '--yes', '--root', sys.argv[2]])\n"
        "print('alive', run.returncode)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code, machine / "dev/accel0", machine], capture_output=True, text=True, timeout=120
    )
    assert "In a notebook, restart the kernel" in finished.stdout
    assert finished.stdout.endswith("alive 1\n")


def test_a_number_that_another_process_got_is_not_ended(machine: Path) -> None:
    with held(machine / "dev/accel0") as process:
        (holder,) = find_holders(machine).holders
        earlier = dataclasses.replace(holder.process, start_ticks=holder.process.start_ticks - 1)
        (outcome,) = free_chips([dataclasses.replace(holder, process=earlier)], yes)
        assert outcome.text == "had ended already"
        assert process.poll() is None


def test_a_process_that_is_gone(machine: Path) -> None:
    with held(machine / "dev/accel0"):
        holders = find_holders(machine).holders
    (outcome,) = free_chips(holders, yes)
    assert (outcome.ended, outcome.text) == (True, "had ended already")


@as_root
def test_processes_of_others_only_with_yes(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held(machine / "dev/accel0", uid=NOBODY) as process:
        (outcome,) = free_chips(find_holders(machine).holders, yes)
        assert not outcome.ended
        assert "belongs to user nobody. Add --yes" in outcome.text
        assert process.poll() is None
        assert main(["doctor", "--free", "--yes", "--json", "--root", str(machine)]) == 0
        assert process.wait(5) == -signal.SIGTERM
    (outcome,) = json.loads(capsys.readouterr().out)["outcomes"]
    assert outcome["holder"]["process"]["user"] == "nobody"


@pytest.mark.parametrize(("answer", "ends"), [("y\n", True), ("yes\n", True), ("\n", False), ("", False), ("n\n", False)])
def test_the_question(
    answer: str, ends: bool, machine: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text(answer)
    with held(machine / "dev/accel0") as process, (tmp_path / "answer").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert main(["doctor", "--free", "--root", str(machine)]) == (0 if ends else 1)
        assert (process.poll() is None) != ends or process.wait(5) == -signal.SIGTERM
    shown = capsys.readouterr()
    assert f"pid {process.pid} (user" in shown.err
    assert "End this process? [y/N]" in shown.err


def test_nobody_holds_them(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--free", "--root", str(machine)]) == 0
    assert "No process that can be seen from here holds a TPU chip" in capsys.readouterr().out
