"""`systolic COMMAND ...`: find the command, hand it its options."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from .. import __version__
from ..exceptions import MisconfigurationException
from ._checkpoint import CHECKPOINT
from ._doctor import DOCTOR
from ._launch import LAUNCH
from ._new import NEW
from ._plan import PLAN
from ._preflight import PREFLIGHT
from ._report import REPORT
from ._run import RUN

COMMANDS = (CHECKPOINT, DOCTOR, LAUNCH, NEW, PLAN, PREFLIGHT, REPORT, RUN)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `systolic`; default: those of this process.

    Returns:
        The exit status: 0 when all is well.

    Example:
        >>> from systolic.cli import main
        >>> status = main(["doctor"])
        Versions
        ...
    """
    options = _parsed(list(sys.argv[1:] if arguments is None else arguments))
    try:
        return options.run(options)
    except MisconfigurationException as error:
        sys.stderr.write(f"systolic {options.command}: {error}\n")
        return 2


def _parsed(words: list[str]) -> Namespace:
    """The options; words that a command hands on (unknown ones, and all behind a lone "--") are in `options.rest`."""
    end = words.index("--") if "--" in words else len(words)
    parser = _parser()
    options, unknown = parser.parse_known_args(words[:end])
    options.rest = [*unknown, *words[end + 1 :]]
    if options.rest and not options.takes_rest:
        parser.error(f"unrecognized arguments: {' '.join(options.rest)}")
    return options


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="systolic", description="Train PyTorch models on TPUs.")
    parser.add_argument("--version", action="version", version=f"systolic {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        own = commands.add_parser(command.name, help=command.summary, description=command.summary, allow_abbrev=False)
        command.add_arguments(own)
        own.set_defaults(run=command.run, takes_rest=command.takes_rest)
    return parser
