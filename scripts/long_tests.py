"""Write tests/long.txt, the tests that `make test` leaves to `make test-tables`, from a report of how long each took.

Make the report with `pytest -n 2 -m "(not slow or tables) and not gpu" --junitxml REPORT`. A test is long if one of its rows
takes over 0.8 seconds in the mean; of a file in which all are, the shortest stays in `make test`, if it takes no more than 15.
Tests that are not in the report keep their place.
"""

from __future__ import annotations

import argparse
import ast
import collections
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG = ROOT / "tests" / "long.txt"
LIMIT = 0.8
"""Seconds of a row. With it `make test` takes less than 15 minutes on two cores."""
LIMIT_ALONE = 15.0
"""Seconds of a row of the shortest test of a file."""
ALWAYS = frozenset({"tests/distributed/test_training.py::test_two_processes_train_as_one"})
"""Long tests that stay: of each thing that systolic is for one."""


def names_of(file: Path) -> Iterator[str]:
    """Tests of a file, as pytest calls them."""
    place = file.relative_to(ROOT)
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield f"{place}::{node.name}"


def seconds_by_test(report: Path) -> dict[str, float]:
    """The mean of a test's rows."""
    rows: dict[str, list[float]] = collections.defaultdict(list)
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place = case.attrib["classname"].replace(".", "/")
        rows[f"{place}.py::{case.attrib['name'].partition('[')[0]}"].append(float(case.attrib["time"]))
    return {name: sum(times) / len(times) for name, times in rows.items()}


def long_tests(seconds: Mapping[str, float], known: Iterable[str]) -> list[str]:
    """What is long by the report, and what was and is not in the report.

    Args:
        seconds: of a row, by test.
        known: tests that are long so far.
    """
    by_file: dict[str, list[str]] = collections.defaultdict(list)
    for name in seconds:
        by_file[name.partition("::")[0]].append(name)
    shortest = {min(names, key=lambda name: seconds[name]) for names in by_file.values()}
    found = {name for name, time in seconds.items() if time > (LIMIT_ALONE if name in shortest else LIMIT)} - ALWAYS
    there = {name for file in (ROOT / "tests").rglob("test_*.py") for name in names_of(file)}
    return sorted((found | (set(known) - seconds.keys())) & there)


def main() -> None:
    """Read the report and write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    report = parser.parse_args().report
    known = LONG.read_text().split() if LONG.exists() else []
    LONG.write_text("\n".join(long_tests(seconds_by_test(report), known)) + "\n")


if __name__ == "__main__":
    main()
