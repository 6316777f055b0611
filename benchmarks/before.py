"""Milliseconds a step of `fit` for the models of `make bench`, of this checkout and of an earlier one, in turns.

Usage: python benchmarks/before.py --before CHECKOUT [--rounds 7] [--models mlp gpt ...]
"""

from __future__ import annotations

import argparse
import datetime
import subprocess
from pathlib import Path

from models import lightning_module, loader_of
from overhead import ROOT
from results import processor, table, vectors, write_section
from turns import Contender, fit_in_turns, medians_of_processes

import systolic

BATCHES = {"mlp": 400, "gpt": 3, "resnet18": 2, "lstm": 4, "bert": 8}
"""Of an epoch, which is a turn."""


def contender(name: str, checkout: Path) -> Contender:
    """A process that fits a model with the systolic of a checkout."""
    return Contender([__file__, "--contend", name], {"PYTHONPATH": str(checkout / "src")}, stderr=subprocess.DEVNULL)


def compare(name: str, before: Path, rounds: int) -> tuple[float, float]:
    """Median milliseconds a step of the other checkout and of this one."""
    found = medians_of_processes({"before": contender(name, before), "now": contender(name, ROOT)}, rounds)
    return found["before"], found["now"]


def main() -> None:
    """Measure, and write a section of RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier systolic")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", nargs="*", default=list(BATCHES), choices=list(BATCHES))
    parser.add_argument("--contend", choices=list(BATCHES), help="fit this model, a turn for each line of the standard input")
    given = parser.parse_args()
    if given.contend is not None:
        loader = loader_of(given.contend, BATCHES[given.contend])
        fit_in_turns(systolic, lightning_module(systolic, given.contend), loader, accelerator="cpu")
        return
    if given.before is None:
        parser.error("--before is needed")
    rows = [["model", "before, ms", "now, ms", "now / before"]]
    for name in given.models:
        before, now = compare(name, given.before.resolve(), given.rounds)
        rows.append([name, f"{before:.3g}", f"{now:.3g}", f"{now / before:.2f}"])
        print(*rows[-1], sep="  ", flush=True)
    write_section(
        f"steps before and now, {vectors()}",
        "## Steps before and now\n\n"
        f"Written by `python benchmarks/before.py --before` on {datetime.date.today()}: {processor()}, both checkouts "
        f"in turns, medians of {given.rounds} rounds, with the installed torch and jax for both. The models of `make bench`, "
        f"one CPU device.\n\n{table(rows)}",
    )


if __name__ == "__main__":
    main()
