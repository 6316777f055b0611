"""docs/promises.md says what the marks above tests say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import promises  # noqa: E402


def test_the_page_is_current() -> None:
    assert promises.main(["--check"]) == 0, "run `make promises`"


def test_marks(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_a.py").write_text(
        "# promise 7: R#1433\n# defect 3\n@decorated(\n    1,\n)\ndef test_one() -> None:\n    pass\n\n\n"
        "# promise 7\nclass TestTwo:\n    pass\n"
    )
    kept = promises.find_marks(tests)
    assert kept == {("promise", 7): ["test_a.py::test_one", "test_a.py::TestTwo"], ("defect", 3): ["test_a.py::test_one"]}
    text = promises.page(kept)
    assert "2 of 44 rows have tests" in text
    assert "`test_a.py::test_one`<br>`test_a.py::TestTwo`" in text
    assert text.count("**not yet kept**") == 42


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# promise 99: L#1\ndef test_one() -> None: ...\n", "there is no promise 99"),
        ("# defect 0\ndef test_one() -> None: ...\n", "there is no defect 0"),
        ("# promise 1\n\ndef test_one() -> None: ...\n", "directly above a test"),
        ("# promise 1\ndef helper() -> None: ...\n", "directly above a test"),
    ],
)
def test_marks_that_are_wrong(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text(text)
    with pytest.raises(ValueError, match=why):
        promises.find_marks(tmp_path / "tests")
