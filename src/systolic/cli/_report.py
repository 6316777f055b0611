"""`systolic report DIR`: one page on a run, from the files that it left."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..trainer import report_of
from ._command import Command


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="directory of a run, such as lightning_logs/version_0; it may still run"
    )
    parser.add_argument("--output", "-o", metavar="FILE", type=Path, help="the page; default: report.html in DIR")


def _run(options: Namespace) -> int:
    sys.stdout.write(f"{report_of(options.directory, options.output)}\n")
    return 0


REPORT = Command(
    "report",
    "Write one HTML page on a run: curves, step times, compilations, memory, checkpoints, where the time went.",
    _add_arguments,
    _run,
)
