"""Seconds until a step of a well-known model is a program for a TPU's compiler: traced by PyTorch, and lowered to StableHLO.

Usage: python benchmarks/trace_time.py --before CHECKOUT [--rounds 3] [--models gpt2 ...]

The modules are those of `tpu_contests.py`, with `precision="bf16-mixed"`; nothing is compiled or run. Each figure is of a
process of its own, and the two checkouts take turns. When a process makes its first optimizer, PyTorch imports its own
compiler: a figure of its own.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import statistics
import time
import warnings
from pathlib import Path

import jax
import torch
from overhead import ROOT, answer_of
from results import processor, table, write_section
from tpu_contests import CONTESTS

import systolic
from systolic.preflight import parse_slice, slice_devices
from systolic.trainer.inspection import Subject, trace_step

SLICE = "v5litepod-8"
MODELS = ["gpt2", "bert-128", "resnet50"]
_IN_CHILD = "import json, sys; from trace_time import measure; print(json.dumps(measure(sys.argv[1])))"


def measure(model: str) -> tuple[float, float, float, int]:
    """Seconds of the trace, seconds of the lowering, seconds of PyTorch's import, and lines of the program."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    torch.optim.SGD([torch.zeros(1)])
    imported = time.perf_counter() - began
    jax.config.update("jax_platforms", "cpu")  # libtpu is here for its compiler
    devices = slice_devices(parse_slice(SLICE))
    module, loader = CONTESTS[model].ours(None)
    trainer = systolic.Trainer(
        accelerator="cpu", precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    started = time.perf_counter()
    step = trace_step(Subject.of(trainer, "fit", module, loader), devices, None)
    traced = time.perf_counter()
    program, arguments = step.program(devices)
    with jax.enable_x64(True):
        gc.disable()  # as `fit` does
        lowered = program.function.lower(*arguments)
        gc.enable()
    finished = time.perf_counter()
    return traced - started, finished - traced, imported, len(lowered.as_text().splitlines())


def in_child(model: str, checkout: Path) -> tuple[float, float, float, int]:
    """`measure` in a process of its own, of the systolic in a checkout."""
    trace, lower, imported, lines = answer_of(["-c", _IN_CHILD, model], [checkout / "src", ROOT / "benchmarks"])
    return trace, lower, imported, lines


def rows_of(model: str, before: Path, rounds: int) -> list[list[str]]:
    """The medians of both checkouts."""
    sides: dict[str, list[tuple[float, float, float, int]]] = {"before": [], "now": []}
    for _ in range(rounds):
        for name, checkout in (("before", before), ("now", ROOT)):
            sides[name].append(in_child(model, checkout))
    rows = []
    for name, found in sides.items():
        trace, lower, imported, lines = (statistics.median(column) for column in zip(*found, strict=True))
        seconds = (f"{value:.1f}" for value in (trace, lower, trace + lower, imported))
        rows.append([f"{model}, {name}", *seconds, f"{lines:.0f}"])
    return rows


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="another checkout of systolic")
    parser.add_argument("--of", default="", help="what that checkout is, for the table")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", nargs="*", default=MODELS, choices=list(CONTESTS))
    given = parser.parse_args()
    rows = [["model", "trace s", "lower s", "both", "import s", "lines of StableHLO"]]
    for model in given.models:
        rows += rows_of(model, given.before.resolve(), given.rounds)
        print(*rows[-2:], sep="\n", flush=True)
    write_section(
        "trace time",
        "## Tracing and lowering\n\n"
        f"Written by `python benchmarks/trace_time.py` on {datetime.date.today()}: {processor()}; torch {torch.__version__}, "
        f"jax {jax.__version__}. The modules of `benchmarks/tpu_contests.py` for {SLICE}, bf16-mixed; medians of "
        f"{given.rounds} processes each, in turns with another checkout ({given.of or given.before.name}). The goal for both "
        f"together is 5 s for GPT-2 and BERT, and 10 s for ResNet-50. Import: of PyTorch's own compiler, by the "
        f"first optimizer of a process, which is not in the others.\n\n{table(rows)}",
    )


if __name__ == "__main__":
    main()
