"""File that a run leaves beside its logger's files: what reports of runs of other processes are made of."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..exceptions import MisconfigurationException
from ._points import ValuePoints

RUN_FILE = "systolic-run.json"
METRICS_FILE = "metrics.csv"
_FORMAT = 1
MOST_RUNS = 20
_SHOWN = 8

Document = dict[str, Any]
"""One run of a Trainer: `RunRecord.as_dict()` with what the Trainer knows about it."""


def write_runs(directory: Path, runs: Sequence[Document]) -> None:
    """Write the newest 20 of some runs; a reader sees the old file or the new one, never a part.

    Nothing waits for the disk: what a crash of the machine leaves is the business of checkpoints.
    """
    text = json.dumps({"format": _FORMAT, "runs": list(runs)[-MOST_RUNS:]})
    temporary = directory / f".{RUN_FILE}.{os.getpid()}.tmp"
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(directory / RUN_FILE)
    finally:
        temporary.unlink(missing_ok=True)


def read_runs(directory: Path) -> list[Document]:
    """The runs that a directory tells of, oldest first.

    Raises:
        MisconfigurationException: there is no such directory, or no file of a run in it, or it cannot be read.
    """
    path = directory / RUN_FILE
    if not path.is_file():
        raise MisconfigurationException(_why_there_is_none(directory))
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        version, runs = found["format"], found["runs"]
    except (ValueError, TypeError, KeyError) as error:
        raise MisconfigurationException(
            f"{path} is no file of a run: {type(error).__name__}: {error}. Expected: JSON with `format` and `runs`, as "
            "`Trainer.fit` writes it. Remove the file, and run again."
        ) from error
    if version != _FORMAT:
        raise MisconfigurationException(
            f"{path} has format {version!r}, and this systolic reads format {_FORMAT}. Make the report with the version of "
            "systolic that made the run."
        )
    return runs


def _why_there_is_none(directory: Path) -> str:
    if not directory.is_dir():
        what = "is a file" if directory.exists() else "does not exist"
        return f"{directory} {what}. Expected: the directory of a run, such as lightning_logs/version_0, with a {RUN_FILE}."
    below = sorted(path.parent for path in directory.rglob(RUN_FILE))
    if below:
        listed = ", ".join(str(path) for path in below[-_SHOWN:])
        return (
            f"{directory} is not the directory of one run: it has no {RUN_FILE} of its own. Expected: one of those below it "
            f"that have: {listed}."
        )
    names = sorted(path.name for path in directory.iterdir())
    found = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    return (
        f"{directory} has no {RUN_FILE}. Expected: the directory of a run, where the first process of `fit`, `validate`, "
        f"`test` and `predict` writes that file beside the logger's. Found there: {found or 'nothing'}. Runs of Lightning, "
        "of older versions of systolic, and those with `logger=False` or `fast_dev_run` leave none: give the directory of "
        "another run, or run again with a logger."
    )


def read_metrics(directory: Path) -> dict[str, Any] | None:
    """Curves of the file that `CSVLogger` writes, as `RunRecord` has them; None where there is no such file.

    A last line that was cut short, as by a kill, and cells that are no numbers are left out.
    """
    path = directory / METRICS_FILE
    if not path.is_file():
        return None
    found: dict[str, ValuePoints] = {}
    with path.open(encoding="utf-8", newline="") as file:
        lines = (line for line in file if line.endswith("\n"))
        for row in csv.DictReader(lines):
            step = _number(row.get("step"))
            for name, cell in row.items():
                value = _number(cell)
                if step is not None and value is not None and name not in ("step", "epoch"):
                    found.setdefault(name, ValuePoints()).add(step, value)
    return {name: points.as_dict() for name, points in found.items()}


def _number(cell: object) -> float | None:
    try:
        return float(cell) if isinstance(cell, str) else None
    except ValueError:
        return None
