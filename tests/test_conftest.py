"""Continuous integration: tests that skip themselves, and tests that there is no time for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
IN_A_TEST = "import pytest\n\ndef test_one():\n    pytest.importorskip({!r})\n"
IN_A_MODULE = "import pytest\n\npytest.importorskip({!r})\n"


@pytest.mark.tables
@pytest.mark.parametrize(("ci", "failed"), [("true", "1 failed, 2 skipped, 1 error"), ("", "4 skipped")])
def test_a_skip_for_want_of_a_proof_fails_in_ci_only(ci: str, failed: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    for number, package in enumerate(("lightning.absent", "absent")):
        (tmp_path / f"test_function_{number}.py").write_text(IN_A_TEST.format(package))
        (tmp_path / f"test_module_{number}.py").write_text(IN_A_MODULE.format(package))
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--continue-on-collection-errors", str(tmp_path)],
        env={**os.environ, "CI": ci},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert failed in run.stdout
    assert ("install it" in run.stdout) is (ci == "true")


@pytest.mark.tables
@pytest.mark.parametrize(("until", "ended"), [("1", "1 skipped"), ("99999999999", "1 passed"), ("", "1 passed")])
def test_none_begins_when_the_time_is_over(until: str, ended: str, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(tmp_path)],
        env={**os.environ, "SYSTOLIC_TESTS_UNTIL": until},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended in run.stdout
    assert ("no time left" in run.stdout) is (ended == "1 skipped")
