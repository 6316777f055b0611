"""docs/bad-input.md says what the tables of bad inputs say."""

from __future__ import annotations

import sys
from pathlib import Path

from bad_input.cases import Case

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import bad_input_page  # noqa: E402


def test_the_page_is_current() -> None:
    assert bad_input_page.main(["--check"]) == 0, "run `make bad-input`"


def test_rows_and_counts() -> None:
    cases = (Case("f(a | b)", lambda: None, ValueError, "no"), Case("g()", lambda: None, UserWarning, "perhaps"))
    text = bad_input_page.page({"Some": cases})
    assert "| Some | 2 | 1 | 1 |" in text
    assert "| `f(a \\| b)` | ValueError | no |" in text
