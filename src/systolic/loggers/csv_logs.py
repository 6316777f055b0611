"""Log metrics to a CSV file and hyperparameters to a YAML file."""

import csv
import io
import os
import warnings
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from ..utilities._private import make_directories
from ._files import append_to_file, drop_unfinished_line, exists, is_url, opened_elsewhere, replace_file
from ._protocol import as_dict
from ._values import plain, prefixed, scalar
from ._versioned import VersionedLogger
from ._yaml import dump_yaml


class ExperimentWriter:
    """Writes the files of one run.

    A run that finds the files of an earlier one in its directory continues them. Rows are appended; when a metric
    appears for the first time the file is replaced by one with the new column. On a file system that fsspec reaches, where
    nothing can be appended to an object, it is replaced by every write.

    Args:
        log_dir: Directory of the run.
    """

    NAME_METRICS_FILE = "metrics.csv"
    NAME_HPARAMS_FILE = "hparams.yaml"

    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir
        self.metrics_file_path = os.path.join(log_dir, self.NAME_METRICS_FILE)
        self.metrics: list[dict[str, Any]] = []
        self.hparams: dict[str, Any] = {}
        if not is_url(log_dir):
            make_directories(Path(log_dir))
        self.metrics_keys, earlier = self._read()
        self.rows_written = len(earlier)

    def log_hparams(self, params: dict[str, Any]) -> None:
        """Add hyperparameters and write all of them."""
        self.hparams.update(params)
        text = dump_yaml({key: plain(value) for key, value in self.hparams.items()})
        replace_file(os.path.join(self.log_dir, self.NAME_HPARAMS_FILE), text.encode())

    def log_metrics(self, metrics_dict: Mapping[str, Any], step: int | None = None) -> None:
        """Buffer one row; without a step, the row's number is the step."""
        number = self.rows_written + len(self.metrics)
        row = {key: cell for name, value in metrics_dict.items() for key, cell in _cells(name, value)}
        self.metrics.append({**row, "step": number if step is None else int(step)})

    def save(self) -> None:
        """Write the buffered rows."""
        if not self.metrics:
            return
        keys = sorted(set(self.metrics_keys).union(*self.metrics))
        if keys == self.metrics_keys and not is_url(self.metrics_file_path) and exists(self.metrics_file_path):
            append_to_file(self.metrics_file_path, _rows(keys, self.metrics).encode())
        else:
            _, earlier = self._read()
            replace_file(self.metrics_file_path, _rows(keys, [*earlier, *self.metrics], header=True).encode())
        self.metrics_keys = keys
        self.rows_written += len(self.metrics)
        self.metrics = []

    def _read(self) -> tuple[list[str], list[dict[str, Any]]]:
        if not exists(self.metrics_file_path):
            return [], []
        if is_url(self.metrics_file_path):
            with opened_elsewhere(self.metrics_file_path) as file:
                return _table(file)
        unfinished = drop_unfinished_line(self.metrics_file_path)
        if unfinished:
            warnings.warn(
                f"The last line of {self.metrics_file_path} was cut short ({unfinished!r}), as by a kill. Removed it.",
                stacklevel=2,
            )
        with open(self.metrics_file_path, encoding="utf-8", newline="") as file:
            return _table(file)


class CSVLogger(VersionedLogger):
    """Log to `<save_dir>/<name>/version_N/metrics.csv` and `hparams.yaml`.

    Unlike Lightning's, a logger that is given the version of an earlier run continues its file and deletes nothing. A
    run resumed from a checkpoint older than the last row therefore has some steps twice; the later row is valid.

    Args:
        save_dir: Directory of all experiments, or a URL such as `gs://bucket/logs` of any file system that fsspec knows.
        name: Name of the experiment; None or empty puts the versions into `save_dir` itself.
        version: Version of the run; None takes the next free number, a string is used as the directory's name.
        prefix: Text to put before every metric's name, with a `-` between.
        flush_logs_every_n_steps: Write at the latest after so many steps or rows; `save()` writes at once.
    """

    def __init__(
        self,
        save_dir: str | os.PathLike[str],
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 100,
    ) -> None:
        super().__init__(save_dir, name, version, prefix)
        if flush_logs_every_n_steps < 1:
            raise ValueError(f"flush_logs_every_n_steps must be at least 1, got {flush_logs_every_n_steps}.")
        self._flush_logs_every_n_steps = flush_logs_every_n_steps
        self._experiment: ExperimentWriter | None = None

    @property
    def experiment(self) -> ExperimentWriter:
        """The writer of this run's files; its first use makes the directory."""
        if self._experiment is None:
            self._experiment = ExperimentWriter(self.log_dir)
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record scalars; a dict of scalars gets one column for each of them."""
        writer = self.experiment
        writer.log_metrics(prefixed(metrics, self._prefix, self.LOGGER_JOIN_CHAR), step)
        every = self._flush_logs_every_n_steps
        if len(writer.metrics) >= every or (writer.metrics[-1]["step"] + 1) % every == 0:
            self.save()

    def log_hyperparams(
        self,
        params: dict[str, Any] | Namespace | None = None,
        metrics: Mapping[str, Any] | None = None,
        step: int | None = None,
    ) -> None:
        """Write hyperparameters, and record the metrics that go with them."""
        self.experiment.log_hparams(as_dict(params))
        if metrics:
            self.log_metrics(metrics, step)

    def save(self) -> None:
        """Write the buffered rows."""
        self.experiment.save()

    def finalize(self, status: str) -> None:
        """Write the buffered rows, if anything was logged."""
        if self._experiment is not None:
            self._experiment.save()


def _cells(name: str, value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, Mapping):
        for part, item in value.items():
            yield from _cells(f"{name}/{part}", item)
        return
    cell = scalar(name, value)
    # A line of the file is a row: that is what lets a cut-off row be recognised.
    yield name, " ".join(cell.splitlines()) if isinstance(cell, str) else cell


def _table(file: IO[str]) -> tuple[list[str], list[dict[str, Any]]]:
    reader = csv.DictReader(file)
    return list(reader.fieldnames or []), list(reader)


def _rows(keys: list[str], rows: list[dict[str, Any]], header: bool = False) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
