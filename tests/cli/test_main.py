"""The dispatcher of the `systolic` command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import systolic
from systolic.cli import main


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(["--version"])
    assert status.value.code == 0
    assert capsys.readouterr().out == f"systolic {systolic.__version__}\n"


def test_unknown_command_lists_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as status:
        main(["docter"])
    assert status.value.code == 2
    assert "doctor" in capsys.readouterr().err


@pytest.mark.tables
def test_the_command_as_a_process() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "systolic", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    report = json.loads(run.stdout)
    assert {"torch", "jax"} <= {v["name"] for v in report["versions"]}
    assert run.returncode == (not report["ok"])
