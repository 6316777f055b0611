"""`systolic doctor`: what keeps this machine from training, and `--free` for the commonest cause."""

from __future__ import annotations

import json
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..doctor import as_text, examine, free_chips
from ..exceptions import MisconfigurationException
from ..hardware import Holder, find_holders
from ._command import Command


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--free", action="store_true", help="end the processes that hold the TPU chips, after asking")
    parser.add_argument("--yes", action="store_true", help="with --free: do not ask, and end other users' processes too")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    # tests examine a directory with stand-ins for the device files
    parser.add_argument("--root", type=Path, default=Path("/"), help=SUPPRESS)


def _run(options: Namespace) -> int:
    if options.yes and not options.free:
        raise MisconfigurationException("--yes belongs to --free: systolic doctor --free --yes. Alone, doctor changes nothing.")
    return _free(options) if options.free else _examine(options)


def _examine(options: Namespace) -> int:
    report = examine(options.root)
    _say(json.dumps(report.as_dict(), indent=2) if options.json else as_text(report))
    return 1 if report.has_errors else 0


def _free(options: Namespace) -> int:
    found = find_holders(options.root)
    outcomes = free_chips(found.holders, _assent if options.yes else _ask, others=options.yes)
    if options.json:
        _say(json.dumps({"outcomes": [asdict(outcome) for outcome in outcomes], "hidden": found.hidden}, indent=2))
    else:
        for outcome in outcomes:
            _say(f"{outcome.holder}\n  {outcome.text}")
        if not outcomes:
            _say("No process that can be seen from here holds a TPU chip.")
        if found.hidden:
            _say(f"{found.hidden} processes of other users could not be looked into: sudo systolic doctor --free")
    return 0 if all(outcome.ended for outcome in outcomes) else 1


def _assent(holders: Sequence[Holder]) -> bool:
    return True


def _ask(holders: Sequence[Holder]) -> bool:
    for holder in holders:
        sys.stderr.write(f"{holder}\n")
    sys.stderr.write(f"End {'this process' if len(holders) == 1 else f'these {len(holders)} processes'}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


DOCTOR = Command("doctor", "Tell what keeps this machine from training on its accelerators.", _add_arguments, _run)
