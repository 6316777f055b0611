"""Write docs/tpu-models.md: what the TPU compiler says about every workload, in every precision, on every generation.

Finished rows are kept in docs/tpu-models.jsonl, so the script can be stopped and started again; rows that another jax or
libtpu made are made again. Cheap models come first; of costly ones, `bf16-mixed` on v5e comes first.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import importlib.metadata
import itertools
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import torch
from results import table
from tpu_workloads import PRECISIONS, SLICES, WORKLOADS

import systolic
from systolic.preflight import PreflightReport, TracedStep, parse_slice, report_on, slice_devices
from systolic.trainer.inspection import Subject, trace_step

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE, ROWS = DOCS / "tpu-models.md", DOCS / "tpu-models.jsonl"
Key = tuple[str, str, str]

HEAD = """# Models on TPU generations

Written by `make tpu-models`; libtpu's compiler made every program ahead of time, nothing ran. Step times are predictions
([preflight.md](preflight.md) says how they are made), HBM is the compiler's figure for one core. *Products* counts the matrix
products and convolutions of the program by the type of what they multiply, without those inside of attention kernels; *f64*
counts the instructions of the optimized program that give float64 (TPUs emulate it). Seconds of compilation were taken on two
shared cores and say little more than the order of magnitude. Batches are those of one core. Rows of BERT and GPT-2 are older
than attention's kernels for masks and dropout (`benchmarks/RESULTS.md`), which take a third less.
"""


@dataclass(frozen=True)
class Row:
    """What became of one model, in one precision, on one slice.

    Attributes:
        model: its name in `WORKLOADS`.
        versions: jax and libtpu.
        step: predicted seconds, or None.
        hbm: bytes of one core that the program needs, or None.
        capacity: bytes of one core that there are, or None.
        products: how many products by the type of their operands.
        doubles: instructions that give float64.
        seconds: of compilation, or None.
        failure: why it did not compile; empty when it did.
        date: of the compilation.
    """

    model: str
    precision: str
    slice: str
    versions: str
    step: float | None = None
    hbm: int | None = None
    capacity: int | None = None
    products: dict[str, int] = dataclasses.field(default_factory=dict)
    doubles: int = 0
    seconds: float | None = None
    failure: str = ""
    date: str = ""

    @property
    def key(self) -> Key:
        return self.model, self.precision, self.slice


def versions() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "libtpu"))


def kept_rows() -> dict[Key, Row]:
    """Rows of earlier runs with these versions; of two with one key, the later one. Errors are tried again."""
    lines = ROWS.read_text().splitlines() if ROWS.exists() else []
    rows = {row.key: row for row in (Row(**json.loads(line)) for line in lines) if row.versions == versions()}
    return {key: row for key, row in rows.items() if row.hbm is not None}


def line_of(row: Row) -> str:
    return json.dumps(dataclasses.asdict(row)) + "\n"


def keys(models: Sequence[str], precisions: Sequence[str]) -> Iterator[Key]:
    """In the order in which they are compiled."""
    cheap = [name for name in models if not WORKLOADS[name].costly]
    costly = [name for name in models if WORKLOADS[name].costly]
    yield from itertools.product(cheap, precisions, SLICES)
    slices = sorted(SLICES, key=lambda name: name != "v5litepod-8")
    yield from ((name, precision, slice) for precision, slice, name in itertools.product(precisions, slices, costly))


def traced(model: str, precision: str, slice: str) -> TracedStep:
    module, loader = WORKLOADS[model].make()
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = systolic.Trainer(accelerator="cpu", precision=precision, max_epochs=1, enable_model_summary=False, **quiet)
    return trace_step(Subject.of(trainer, "fit", module, loader), slice_devices(parse_slice(slice)), None)


def row_of(key: Key, report: PreflightReport) -> Row:
    return Row(
        *key,
        versions(),
        step=None if report.time is None else report.time.step,
        hbm=report.memory.total,
        capacity=report.memory.capacity,
        products=report.products,
        doubles=sum(report.dtypes.get(name, 0) for name in ("f64", "c128")),
        seconds=report.compilation.compile,
        failure=" ".join(report.refusal.split())[:300],
        date=str(datetime.date.today()),
    )


def compile_missing(wanted: Iterable[Key], done: dict[Key, Row]) -> Iterator[Row]:
    """Compile what is missing, one program after the other; a step is traced once for every number of cores."""
    steps: dict[tuple[str, str, int], TracedStep] = {}
    for key in wanted:
        model, precision, name = key
        if key in done:
            continue
        slice = parse_slice(name)
        if precision not in {known for _, known, _ in steps}:
            steps.clear()
        traced_for = (model, precision, slice.devices)
        try:
            if traced_for not in steps:
                steps[traced_for] = traced(model, precision, name)
            yield row_of(key, report_on(steps[traced_for], slice))
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            yield Row(*key, versions(), failure=reason[:300], date=str(datetime.date.today()))


def page(rows: dict[Key, Row]) -> str:
    parts = [HEAD, f"Versions: {versions()}, torch {torch.__version__}.\n", "## What compiles\n", summary(rows)]
    parts.append(f"\n{missing(rows)}")
    for name, workload in WORKLOADS.items():
        found = [rows[key] for key in itertools.product([name], PRECISIONS, SLICES) if key in rows]
        if found:
            parts.append(f"\n## {workload.title}\n\n{table([COLUMNS, *map(cells, found)])}")
    return "\n".join(parts) + "\n"


COLUMNS = ["precision", "slice", "step", "HBM of a core", "products", "f64", "compiled in"]


def cells(row: Row) -> list[str]:
    if row.failure:
        return [row.precision, row.slice, f"did not compile: {row.failure}".replace("|", "\\|"), "", "", "", ""]
    assert row.step is not None, "a compiled program has a prediction"
    assert row.hbm is not None, "a compiled program has figures of its memory"
    assert row.capacity is not None, "a compiled program has figures of its memory"
    products = ", ".join(f"{count} {kind}" for kind, count in row.products.items())
    hbm = f"{row.hbm / 2**20:,.0f} MiB ({row.hbm / row.capacity:.0%})"
    step = f"{1e3 * row.step:.3g} ms" if row.step < 1 else f"{row.step:.2f} s"
    return [row.precision, row.slice, step, hbm, products, str(row.doubles), f"{row.seconds:.0f} s"]


def summary(rows: dict[Key, Row]) -> str:
    lines = [["model", *PRECISIONS]]
    for name, workload in WORKLOADS.items():
        lines.append([workload.title, *(_counted([rows.get((name, p, s)) for s in SLICES]) for p in PRECISIONS)])
    return table(lines)


def _counted(found: list[Row | None]) -> str:
    good = sum(row is not None and not row.failure for row in found)
    bad = sum(row is not None and bool(row.failure) for row in found)
    return f"{good} of {len(found)}" + (f", {bad} failed" if bad else "")


def missing(rows: dict[Key, Row]) -> str:
    """Which combinations were not tried."""
    lines = []
    for name, precision in itertools.product(WORKLOADS, PRECISIONS):
        absent = [slice for slice in SLICES if (name, precision, slice) not in rows]
        if absent:
            slices = "all seven slices" if len(absent) == len(SLICES) else ", ".join(absent)
            lines.append(f"- {WORKLOADS[name].title}, {precision}: {slices}")
    return "**Not compiled yet:**\n\n" + "\n".join(lines) if lines else "Every combination has been compiled."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(WORKLOADS), choices=list(WORKLOADS))
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS), choices=list(PRECISIONS))
    parser.add_argument("--page-only", action="store_true", help="write the page from finished rows")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    jax.config.update("jax_platforms", "cpu")  # libtpu is here for its compiler
    done = kept_rows()
    if not arguments.page_only:
        ROWS.write_text("".join(map(line_of, done.values())))
        for row in compile_missing(keys(arguments.models, arguments.precisions), done):
            done[row.key] = row
            with ROWS.open("a") as file:
                file.write(line_of(row))
            print(*cells(row), sep="  ", flush=True)
            PAGE.write_text(page(done))
    PAGE.write_text(page(done))


if __name__ == "__main__":
    main()
