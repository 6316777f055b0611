"""Loaders of other packages that know where they are: a run that resumes in the middle of an epoch ends as a whole one."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("guest_loader.py")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "workers"),
    [
        pytest.param("torchdata", 0, marks=pytest.mark.tables),
        ("torchdata", 2),
        pytest.param("grain", 0, marks=pytest.mark.tables),
        ("grain loader", 0),
        ("grain loader", 1),
    ],
)
def test_a_run_resumes_where_the_loader_was(kind: str, workers: int, tmp_path: Path) -> None:
    if find_spec(kind.split()[0]) is None:
        pytest.skip(f"{kind.split()[0]} is not installed")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SCRIPT.parents[1]), *sys.path]), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(SCRIPT), str(tmp_path), kind, str(workers)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 resumed" in done.stdout
