"""`systolic preflight train.py --slice v5litepod-8`: what the script's step would do on a slice that is not here."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from rich.console import Console

from ..compiler import REMATS
from ..exceptions import MisconfigurationException
from ..preflight import Comparison, PreflightReport, parse_slice, slice_devices
from ..runtime import Devices, find_devices
from ..strategies import STRATEGIES, choose_strategy
from ..trainer import Intended
from ._command import Command
from ._script import EPILOG, instead_of_running
from ._sweep import parse_sweep


def _add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EPILOG.format(command="preflight")
    parser.add_argument("script", type=Path, help="the training script")
    parser.add_argument(
        "--slice",
        action="append",
        default=[],
        dest="slices",
        help="v5litepod-8, v4-32, '2x v5litepod-256', or a topology such as v5e:2x4; can be given several times",
    )
    parser.add_argument("--batch-size", type=int, help="samples per core, in place of those of the script's loader")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        help="a table instead: batch_size=8..512 (doubling), batch_size=8,24 or slice=v5litepod-8,v6e-8; twice for both",
    )
    parser.add_argument("--strategy", choices=STRATEGIES, help="in place of the Trainer's: how the state is divided")
    parser.add_argument("--remat", choices=REMATS, help="in place of the Trainer's: what backward computes again")
    parser.add_argument(
        "--advise",
        action="store_true",
        default=None,
        help="also compile larger batches and bf16-mixed for advice; what does not fit is always tried smaller",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each slice in a list, and nothing else")
    parser.add_argument("--html", type=Path, metavar="FILE", help="also write a page, with a bar of HBM use and a roofline")
    parser.add_argument(
        "--measure", action="store_true", help="also run the step on this machine's devices, and compare with the prediction"
    )


def _run(options: Namespace) -> int:
    sweep = parse_sweep(options.sweep)
    options.slices = [*options.slices, *sweep.slices]
    options.batch_sizes = sweep.batch_sizes
    if options.batch_size and sweep.batch_sizes:
        raise MisconfigurationException("--batch-size and --sweep batch_size=... exclude each other; give one of them.")
    if options.batch_size is not None and options.batch_size < 1:
        raise MisconfigurationException(f"--batch-size expects an integer >= 1. Received: {options.batch_size}.")
    if not options.slices:
        raise MisconfigurationException("Say for which slice: --slice v5litepod-8, or --sweep slice=v5litepod-8,v6e-8.")
    if options.html and not options.html.parent.is_dir():
        raise MisconfigurationException(f"--html: there is no folder {str(options.html.parent)!r} for {options.html.name!r}.")
    for name in options.slices:
        _known_slice(name)
    reports = _reports(options)
    if options.html:
        options.html.write_text(Comparison(reports).to_html() if options.sweep or len(reports) > 1 else reports[0].to_html())
    if options.json:
        sys.stdout.write(json.dumps([report.to_dict() for report in reports], indent=2) + "\n")
    elif options.sweep:
        Console().print(Comparison(reports))
    else:
        console = Console()
        for report in reports:
            console.print(report)
    return 0 if options.sweep or all(report.fits for report in reports) else 1


def _known_slice(name: str) -> None:
    try:
        slice_devices(parse_slice(name))
    except ValueError as error:
        raise MisconfigurationException(str(error)) from error


def _reports(options: Namespace) -> list[PreflightReport]:
    """Reports of the step that the script is about to run."""

    def compile(intended: Intended, requested: tuple[str, Devices]) -> list[PreflightReport]:
        trainer = intended.trainer
        if options.strategy:
            trainer.reconfigure(dataclasses.replace(trainer.config, sharding=choose_strategy(options.strategy)))
        if options.remat:
            trainer.reconfigure(dataclasses.replace(trainer.config, remat=options.remat))
        return trainer.preflight(
            intended.model,
            intended.data,
            intended.datamodule,
            slice=options.slices,
            stage=intended.stage,
            batch_size=options.batch_sizes or options.batch_size,
            measure=find_devices(*requested) if options.measure else False,
            advise=options.advise,
        )

    return instead_of_running(options, "preflight train.py --slice NAME", options.slices[0], compile)


PREFLIGHT = Command(
    "preflight",
    "Compile a script's step for a TPU slice, without a TPU, and report what it would do there.",
    _add_arguments,
    _run,
    takes_rest=True,
)
