"""Check systolic against PyTorch's operator database, and write docs/ops.md and the baseline of the tests.

The baseline keeps operators that only other releases of PyTorch have.

Usage: python scripts/op_coverage.py [--samples 4] [--jobs 2] [--seconds 60] [--only NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from _opdb_check import operators
from _opdb_pool import Report, check_all
from _opdb_report import document

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "ops.md"
BASELINE = ROOT / "tests" / "compiler" / "op_coverage.json"


def main() -> None:
    """Run the sweep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4, help="samples per operator")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit for one operator")
    parser.add_argument("--only", nargs="*", help="these operators; prints, and writes nothing")
    parser.add_argument("--json", type=Path, help="also write every report to this file")
    arguments = parser.parse_args()
    started = time.perf_counter()
    known = sorted(operators())
    names = arguments.only or known
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"no such operators in PyTorch's database: {', '.join(unknown)}")
    reports = check_all(names, arguments.samples, arguments.jobs, arguments.seconds, _print)
    counts = Counter(report["status"] for report in reports)
    sys.stdout.write(f"{dict(counts)} in {time.perf_counter() - started:.0f} s\n")
    if arguments.json:
        arguments.json.write_text(json.dumps(reports, indent=1))
    if not arguments.only:
        kept = {name: status for name, status in json.loads(BASELINE.read_text()).items() if name not in known}
        DOCUMENT.write_text(document(reports, arguments.samples, kept))
        found = kept | {r["name"]: r["status"] for r in reports}
        BASELINE.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


def _print(report: Report) -> None:
    reasons = "; ".join(report["reasons"])
    sys.stdout.write(f"{report['status']:11} {report['passed']}/{report['samples']} {report['name']}  {reasons}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
