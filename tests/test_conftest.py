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


LONG = CONFTEST.with_name("long.txt")


def printed_by_pytest(folder: Path, *options: str, long: str = "", **environment: str) -> str:
    """Output of pytest over a folder of tests, with our conftest; the time that this run may have itself is not theirs."""
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "long.txt").write_text(long)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(folder)],
        env={**os.environ, "SYSTOLIC_TESTS_UNTIL": "", "SYSTOLIC_TESTS_FROM": "", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    ).stdout


@pytest.mark.tables
@pytest.mark.parametrize(("ci", "failed"), [("true", "1 failed, 2 skipped, 1 error"), ("", "4 skipped")])
def test_a_skip_for_want_of_a_proof_fails_in_ci_only(ci: str, failed: str, tmp_path: Path) -> None:
    for number, package in enumerate(("lightning.absent", "absent")):
        (tmp_path / f"test_function_{number}.py").write_text(IN_A_TEST.format(package))
        (tmp_path / f"test_module_{number}.py").write_text(IN_A_MODULE.format(package))
    printed = printed_by_pytest(tmp_path, "--continue-on-collection-errors", CI=ci)
    assert failed in printed
    assert ("install it" in printed) is (ci == "true")


@pytest.mark.tables
@pytest.mark.parametrize(("until", "ended"), [("1", "1 skipped"), ("99999999999", "1 passed"), ("", "1 passed")])
def test_none_begins_when_the_time_is_over(until: str, ended: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    printed = printed_by_pytest(tmp_path, "-rs", SYSTOLIC_TESTS_UNTIL=until)
    assert ended in printed
    assert ("no time left" in printed) is (ended == "1 skipped")


@pytest.mark.tables
def test_a_long_test_is_left_to_the_tables(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_short():\n    pass\n\ndef test_long():\n    pass\n")
    for marks, ended in (
        ("not slow", "1 passed, 1 deselected"),
        ("tables", "1 passed, 1 deselected"),
        ("slow or not slow", "2"),
    ):
        printed = printed_by_pytest(tmp_path, "-vv", "-m", marks, long="test_one.py::test_long")
        assert ended in printed
    assert printed.index("::test_long") < printed.index("::test_short"), "first, in case that time ends"


@pytest.mark.tables
@pytest.mark.parametrize(("begin", "order"), [("0", "abc"), ("1", "bca"), ("1001", "cab"), ("", "cab")])
def test_each_run_begins_at_another_place(begin: str, order: str, tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("".join(f"def test_{name}():\n    pass\n\n" for name in "abc"))
    printed = printed_by_pytest(
        tmp_path, "-vv", "-m", "slow or not slow", long="test_one.py::test_c", SYSTOLIC_TESTS_FROM=begin
    )
    assert "".join(sorted("abc", key=lambda name: printed.index(f"::test_{name}"))) == order, printed


def test_long_tests_exist() -> None:
    """Else a test that got another name would come back to `make test`, and nobody would see why."""
    for name in LONG.read_text().split():
        file, _, function = name.partition("::")
        assert f"def {function}(" in (CONFTEST.parents[1] / file).read_text(), name
