"""Compile models for TPU slices that are not here: systolic against hand-written JAX.

Run it with `python benchmarks/tpu_compile.py`; it takes minutes per program. Finished rows are kept in
`benchmarks/tpu_compile.jsonl`, so the script can be stopped and started again; rows of another jax or libtpu are made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch
from jax.sharding import Mesh
from results import table, write_section
from tpu_contests import CONTESTS
from tpu_models import versions

import systolic
from systolic.preflight import Slice, parse_slice, slice_devices
from systolic.preflight._compiled import Compiled, Lowered
from systolic.preflight._hlo import analyse
from systolic.preflight._kernel_time import kernel_seconds
from systolic.trainer.inspection import Subject, trace_step

SLICES = ("v5litepod-8", "v6e-8")
ROWS = Path(__file__).parent / "tpu_compile.jsonl"
OURS = "systolic"

RULES = """Both sides are one training step, compiled ahead of time by libtpu's compiler; nothing ran. FLOPs: XLA's count,
and for the attention kernels 2 x scores x features for each of their products (2 forward, 5 backward; ours state
the scores that they visit, JAX's do not: all of them, of Llama's 3/4). Bytes: operands and results of every
operation that lie in HBM. HBM: arguments, results and temporaries of one core. Cycles: the sum of the compiler's
own `estimated_cycles`; operations without an estimate (gathers, scatters, random bits) at bytes / bandwidth,
attention kernels at FLOPs / peak and the instructions for each score that the compiler scheduled when it compiled
them alone (`systolic/preflight/_kernel_time.py` has them for both sides); transfers that run beside other work
and collectives are left out. The ratio is that of predicted cycles to the fastest reference of the model. Utilization:
FLOPs / predicted time / the chip's peak, at the batch that is named. Products / bytes alone, a roofline: the cycles that
FLOPs take at the peak, and those in which arguments are read and results written once at the chip's bandwidth."""


@dataclass(frozen=True)
class Row:
    """What one program does in a step, on one core.

    Attributes:
        model: its name in `CONTESTS`.
        slice: the slice's name.
        by: whose program it is: `OURS`, or the name of a reference.
        versions: of jax and libtpu.
        date: of the compilation.
        flops: of the step.
        bytes: moved between HBM and the core.
        hbm: bytes that the program needs.
        estimated: the compiler's cycles.
        cycles: the predicted ones.
        least: bytes that move in any case: arguments that are read, and results that are written; 0 in rows of before.
    """

    model: str
    slice: str
    by: str
    versions: str
    date: str
    flops: float
    bytes: float
    hbm: int
    estimated: int
    cycles: float
    least: int = 0

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from other rows."""
        return self.model, self.slice, self.by


def kept_rows() -> dict[tuple[str, str, str], Row]:
    """Rows of earlier runs with these versions; of two with one key, the later one."""
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    return {row.key: row for row in (Row(**json.loads(line)) for line in lines) if row.versions == versions()}


def compiled(model: str, slice: Slice, by: str, layers: int | None) -> Compiled:
    """What the compiler says about one side."""
    target = f"{slice.topology} {slice.chip.devices} {slice.count}"
    devices, contest = slice_devices(slice), CONTESTS[model]
    if by != OURS:
        function, arguments = contest.references[by](Mesh(np.array(devices), ("data",)), layers)
        return Lowered(function, arguments, target, wide=False).compile()
    module, loader = contest.ours(layers)
    trainer = systolic.Trainer(
        accelerator="cpu", precision="bf16-mixed", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    step = trace_step(Subject.of(trainer, "fit", module, loader), devices, None)
    program, arguments = step.program(devices)
    return Lowered(program.function, arguments, target).compile()


def row_of(model: str, slice: Slice, by: str, result: Compiled) -> Row:
    """The same rules for both sides."""
    found = analyse(result.hlo)
    chip = slice.chip
    visited = 1.0 if by == OURS else CONTESTS[model].visited
    seconds = visited * sum(kernel_seconds(one, chip) for one in found.custom_calls)
    beside = ("copy-start", "slice-start")
    seconds += sum(
        one.hbm_bytes * one.times / chip.bandwidth_per_device for one in found.unestimated if one.opcode not in beside
    )
    stated = sum(one.flops_known_to_xla for one in found.custom_calls)
    flops = result.flops - stated + visited * sum((one.flops or 0) * one.operation.times for one in found.custom_calls)
    hbm = result.memory["arguments"] + result.memory["outputs"] - result.memory["aliased"] + result.memory["temporaries"]
    moved = sum(one.hbm_bytes * one.times for one in found.operations)
    cycles = found.estimated_cycles + seconds * chip.clock_hz
    today = str(datetime.date.today())
    least = result.memory["arguments"] + result.memory["outputs"]
    return Row(model, slice.name, by, versions(), today, flops, moved, hbm, found.estimated_cycles, cycles, least)


def cells(row: Row, best: float | None) -> list[str]:
    """A line of the table."""
    figures = (row.flops / 1e12, row.bytes / 1e9, row.hbm / 1e9, row.estimated / 1e6, row.cycles / 1e6)
    ratio = f"{row.cycles / best:.3f}" if row.by == OURS and best else ""
    numbers = [f"{figure:.3g}" if figure < 100 else f"{figure:.1f}" for figure in figures]
    chip = parse_slice(row.slice).chip
    products = row.flops / chip.flops_per_device * chip.clock_hz
    bytes_alone = row.least / chip.bandwidth_per_device * chip.clock_hz
    least = f"{products / 1e6:.3g} / {bytes_alone / 1e6:.3g}" if row.least else ""
    return [f"{row.model}, {row.slice}", row.by, *numbers, ratio, f"{products / row.cycles:.1%}", least, row.date]


def document(rows: Iterable[Row]) -> str:
    """The section of RESULTS.md."""
    every = list(rows)
    head = ["model, slice", "by", "TFLOP", "GB moved", "GB of HBM", "estimated M cycles", "predicted M cycles", "ratio"]
    lines = [[*head, "utilization", "products / bytes alone, M cycles", "of"]]
    for model, contest in CONTESTS.items():
        for name in dict.fromkeys(row.slice for row in every if row.model == model):
            found = [row for row in every if (row.model, row.slice) == (model, name)]
            best = min((row.cycles for row in found if row.by != OURS), default=None)
            order = [*contest.references, OURS]
            lines += [cells(row, best) for row in sorted(found, key=lambda row: order.index(row.by))]
    models = " ".join(f"{name}: {contest.about}" for name, contest in CONTESTS.items() if name in {row.model for row in every})
    return (
        "## TPU compiler: systolic against hand-written JAX\n\n"
        f"Written by `python benchmarks/tpu_compile.py`: {versions()}, torch {torch.__version__}. {models} "
        "The references are in `benchmarks/reference/`; systolic compiles the PyTorch modules of `benchmarks/tpu_contests.py` "
        f'with `precision="bf16-mixed"`.\n\n{RULES}\n\n{table(lines)}'
    )


def main() -> None:
    """Compile what is missing, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(CONTESTS), choices=list(CONTESTS))
    parser.add_argument("--slices", nargs="*", default=SLICES)
    parser.add_argument("--by", nargs="*", help="whose programs to compile: systolic, or names of references")
    parser.add_argument("--layers", type=int, help="fewer layers, to compile faster; nothing is kept then")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_platforms", "cpu")  # libtpu is here for its compiler
    kept: dict[Any, Row] = {} if given.layers else kept_rows()
    for name in given.slices:
        for model in given.models:
            for by in [*CONTESTS[model].references, OURS]:
                if (model, name, by) in kept or (given.by and by not in given.by):
                    continue
                slice = parse_slice(name)
                result = compiled(model, slice, by, given.layers)
                if loops := analyse(result.hlo).unknown_loops:
                    print(f"{model}, {name}, {by}: not counted, {len(loops)} loops run nobody knows how often", flush=True)
                    continue
                row = row_of(model, slice, by, result)
                print(*cells(row, None), sep="  ", flush=True)
                kept[row.key] = row
                if not given.layers:
                    with ROWS.open("a") as file:
                        file.write(json.dumps(dataclasses.asdict(row)) + "\n")
    if not given.layers:
        write_section("tpu compiler", document(kept.values()))


if __name__ == "__main__":
    main()
