"""`systolic plan train.py --slices v5litepod-8..v5litepod-64 --global-batch 512`: the cheapest and the fastest way to train."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..compiler import REMATS
from ..exceptions import MisconfigurationException
from ..preflight import Plan, PlanRequest, parse_duration, parse_prices, slice_devices, slices_in
from ..runtime import Devices
from ..strategies import STRATEGIES
from ..trainer import Intended, plan
from ..utilities._suggest import suggest
from ._command import Command
from ._script import EPILOG, instead_of_running

_USAGE = "plan train.py --slices v5litepod-8..v5litepod-64 --global-batch 512"
_DEFAULTS = PlanRequest((), 1)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EPILOG.format(command="plan")
    parser.add_argument("script", type=Path, help="the training script")
    parser.add_argument(
        "--slices", help="v5litepod-8..v5litepod-64,v6e-8: names, and ranges of one generation (doubling the chips)"
    )
    parser.add_argument("--global-batch", help="samples for an update: per core x accumulation x cores")
    parser.add_argument("--deadline", help="24h, 90m, 1d12h: the cheapest way that is done by then")
    parser.add_argument("--budget", help="USD: the fastest way that costs no more")
    parser.add_argument("--epochs", help="in place of the Trainer's max_epochs and max_steps")
    parser.add_argument("--steps", help="updates of the parameters, in place of the Trainer's max_epochs and max_steps")
    parser.add_argument(
        "--strategies", default=",".join(_DEFAULTS.strategies), help=f"of {', '.join(STRATEGIES)}; default: %(default)s"
    )
    parser.add_argument("--remat", default=",".join(_DEFAULTS.remats), help=f"of {', '.join(REMATS)}; default: %(default)s")
    parser.add_argument("--price", help="USD per chip and hour in place of the table: 0.60, or v5litepod=0.60,v6e=1.35")
    parser.add_argument("--compile", default=str(_DEFAULTS.most), help="how many ways to compile; default: %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the plan there, with all figures")


def _run(options: Namespace) -> int:
    request = _request(options)
    if options.json and not options.json.parent.is_dir():
        raise MisconfigurationException(f"--json: there is no folder {str(options.json.parent)!r} for {options.json.name!r}.")

    def search(intended: Intended, requested: tuple[str, Devices]) -> Plan:
        return plan(intended, request)

    found = instead_of_running(options, _USAGE, request.slices[0].name, search)
    if options.json:
        options.json.write_text(json.dumps(found.to_dict(), indent=2) + "\n")
    Console().print(found)
    return 0 if found.succeeds else 1


def _request(options: Namespace) -> PlanRequest:
    """Request of a command line, checked.

    Raises:
        MisconfigurationException: an option is missing, or has an impossible value.
    """
    if not options.slices or not options.global_batch:
        raise MisconfigurationException(f"--slices and --global-batch are needed. Usage: systolic {_USAGE}")
    if options.deadline and options.budget:
        raise MisconfigurationException("--deadline and --budget exclude each other; give one of them.")
    slices = slices_in(options.slices)
    for slice in slices:
        try:
            slice_devices(slice)
        except ValueError as error:
            raise MisconfigurationException(f"--slices: {error}") from error
    return PlanRequest(
        slices=tuple(slices),
        global_batch=_count("--global-batch", options.global_batch, 1),
        strategies=_names("--strategies", options.strategies, STRATEGIES),
        remats=_names("--remat", options.remat, REMATS),
        deadline=parse_duration(options.deadline) if options.deadline else None,
        budget=_dollars(options.budget) if options.budget else None,
        epochs=_count("--epochs", options.epochs, 1) if options.epochs else None,
        steps=_count("--steps", options.steps, 1) if options.steps else None,
        prices=parse_prices(options.price) if options.price else {},
        most=_count("--compile", options.compile, 1),
    )


def _count(option: str, text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
        raise MisconfigurationException(f"Invalid value for {option}. Expected an integer >= {least}. Received: {text!r}.")
    return int(text)


def _dollars(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) or not float(text):
        raise MisconfigurationException(
            f"Invalid value for --budget. Expected USD, a number above 0 such as 250. Received: {text!r}."
        )
    return float(text)


def _names(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """Names of a list; "auto" is "ddp"."""
    for name in text.split(","):
        if name not in known:
            raise MisconfigurationException(
                f"Invalid value for {option}. Expected names of {', '.join(known)}, with commas. "
                f"Received: {text!r}.{suggest(name, known)}"
            )
    return tuple(dict.fromkeys("ddp" if name == "auto" else name for name in text.split(",")))


PLAN = Command(
    "plan",
    "Search slices, strategies, remat and batches for the cheapest and the fastest way to train a script.",
    _add_arguments,
    _run,
    takes_rest=True,
)
