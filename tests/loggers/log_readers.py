"""Read back what the loggers wrote, with the tools that users have."""

import csv
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

Series = dict[str, list[tuple[int, float]]]


def read_csv(log_dir: str) -> Series:
    """Return the points of every column; a cell left empty is no point."""
    series: Series = {}
    with (Path(log_dir) / "metrics.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            step = int(row.pop("step"))
            for name, cell in row.items():
                if cell:
                    value = float({"True": "1", "False": "0"}.get(cell, cell))
                    series.setdefault(name, []).append((step, value))
    return series


def events(log_dir: str) -> EventAccumulator:
    """Return TensorBoard's own reader of a run."""
    return EventAccumulator(log_dir).Reload()


def read_events(log_dir: str) -> Series:
    """Return the points of every scalar tag."""
    accumulator = events(log_dir)
    return {tag: [(e.step, e.value) for e in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]}
