"""Write docs/promises.md: every promise with the tests that keep it, from marks above tests.

A mark is a comment directly above a test, such as `# promise 7: R#1433` or `# defect 3`. With `--check` nothing is written;
the exit status says whether the page is current.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from _page import write_or_check
from _promise_rows import DEFECTS, PROMISES, Row

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "promises.md"
_MARK = re.compile(r"^# (promise|defect) (\d+)(?:: .*)?$")
_TEST = re.compile(r"^(?:def|class) ([Tt]est\w*)")
Kept = dict[tuple[str, int], list[str]]

_HEAD = """# Promises

What users of PyTorch on TPUs complained about for years, and what systolic promises instead. This page is made by
`make promises` from marks above tests (`# promise 7: R#1433`); a test checks that it is current. A row without a test is
not kept yet.

L is Lightning-AI/pytorch-lightning, X pytorch/xla, A huggingface/accelerate, R roboflow/rf-detr.
"""


def find_marks(directory: Path) -> Kept:
    """By (kind, number), the tests that are marked with it.

    Raises:
        ValueError: a mark stands above something that is no test, or names a row that does not exist.
    """
    kept: Kept = defaultdict(list)
    known = {("promise", row.number) for row in PROMISES} | {("defect", row.number) for row in DEFECTS}
    for path in sorted(directory.rglob("*.py")):
        lines = path.read_text().splitlines()
        for index, line in enumerate(lines):
            mark = _MARK.match(line)
            if mark is None:
                continue
            row = (mark[1], int(mark[2]))
            where = f"{path.relative_to(directory.parent).as_posix()}:{index + 1}"
            if row not in known:
                raise ValueError(f"{where}: there is no {mark[1]} {mark[2]}")
            kept[row].append(f"{path.relative_to(directory).as_posix()}::{_test_below(lines[index:], where)}")
    return kept


def _test_below(lines: Sequence[str], where: str) -> str:
    for line in lines:
        test = _TEST.match(line)
        if test is not None:
            return test[1]
        if not line or (line[0] not in "#@ )]" and not line.startswith(("def ", "class "))):
            break
    raise ValueError(f"{where}: a mark stands directly above a test")


def page(kept: Kept) -> str:
    """The text of docs/promises.md."""
    count = len(kept)
    total = len(PROMISES) + len(DEFECTS)
    parts = [_HEAD, f"{count} of {total} rows have tests.\n"]
    parts += ["## Complaints and promises\n", *_table("promise", PROMISES, kept), ""]
    parts += ["## Defects of Lightning's TPU path that must not be here\n", *_table("defect", DEFECTS, kept)]
    return "\n".join(parts) + "\n"


def _table(kind: str, rows: Sequence[Row], kept: Kept) -> list[str]:
    lines = ["| # | what went wrong | here | tests |", "|---|---|---|---|"]
    for row in rows:
        tests = "<br>".join(f"`{test}`" for test in dict.fromkeys(kept.get((kind, row.number), []))) or "**not yet kept**"
        lines.append(f"| {row.number} | {row.complaint} | {row.promise} | {tests} |")
    return lines


def main(arguments: Sequence[str]) -> int:
    """Write the page, or check it."""
    return write_or_check(PAGE, page(find_marks(ROOT / "tests")), arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
