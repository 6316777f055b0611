"""`systolic doctor`: what is wrong with this machine."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace

from ..diagnostics.doctor import Report, as_text, examine
from ._command import Command


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def _run(options: Namespace) -> int:
    report: Report = examine()
    text = json.dumps(report.as_dict(), indent=2) if options.json else as_text(report)
    sys.stdout.write(text + "\n")
    return 1 if report.has_errors else 0


DOCTOR = Command("doctor", "Tell what keeps this machine from training on its accelerators.", _add_arguments, _run)
