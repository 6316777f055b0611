"""Write docs/bad-input.md: every bad input that is tested, and its answer, from the tables in tests/bad_input.

With `--check` nothing is written; the exit status says whether the page is current.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from _page import write_or_check

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "bad-input.md"
sys.path.insert(0, str(ROOT / "tests"))

from bad_input import TABLES  # noqa: E402
from bad_input.cases import Case  # noqa: E402

_HEAD = """# Bad input

What is given by mistake, and what answers. `make bad-input` writes this page from the tables in `tests/bad_input`. A test
gives every row to systolic and compares class and text, and another one checks that the page is current. The text is a part of
the answer, which says more: what was expected, what was received, where, and what to do.

Taken without a word, and meant so: a `__len__` that is too small. It is how long an epoch of a stream is made, and Lightning
takes it as well; reading on to find out could wait for ever. Clocks that a compiled step reads are warned of, by whichever name
their module has them; not one that an object or a default argument keeps, or that the step imports itself.
"""


def page(tables: Mapping[str, Sequence[Case]]) -> str:
    """The text of docs/bad-input.md."""
    parts = [_HEAD, *_counts(tables), ""]
    for group, cases in tables.items():
        parts += [f"## {group}\n", "| given | answer | says |", "|---|---|---|"]
        parts += [f"| {_code(case.given)} | {case.answer.__name__} | {_cell(case.says)} |" for case in cases]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def _counts(tables: Mapping[str, Sequence[Case]]) -> list[str]:
    lines = ["| group | rows | errors | warnings |", "|---|---|---|---|"]
    total = [0, 0]
    for group, cases in tables.items():
        warned = sum(issubclass(case.answer, Warning) for case in cases)
        total[0] += len(cases)
        total[1] += warned
        lines.append(f"| {group} | {len(cases)} | {len(cases) - warned} | {warned} |")
    return [*lines, f"| **all** | **{total[0]}** | **{total[0] - total[1]}** | **{total[1]}** |"]


def _code(text: str) -> str:
    return f"`{_cell(text)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, page(TABLES), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
