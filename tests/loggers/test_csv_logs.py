"""The CSV file itself: its layout, and that it is whole at every moment."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from systolic.loggers import CSVLogger, _files


def lines(logger: CSVLogger) -> list[str]:
    return Path(logger.experiment.metrics_file_path).read_text().split("\n")


def test_layout(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"loss": 0.5, "acc": 1}, step=0)
    logger.save()
    assert lines(logger) == ["acc,loss,step", "1,0.5,0", ""]
    logger.log_metrics({"note": "two\nlines", "lines": {"a": 1.0, "b": {"c": 2.0}}}, step=1)
    logger.save()
    assert lines(logger) == [
        "acc,lines/a,lines/b/c,loss,note,step",
        "1,,,0.5,,0",
        ",1.0,2.0,,two lines,1",
        "",
    ]


def test_steps_are_counted_when_none_is_given(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, version=0)
    for _ in range(2):
        logger.log_metrics({"x": 1.0})
        logger.save()
    logger = CSVLogger(tmp_path, version=0)
    logger.log_metrics({"x": 1.0})
    logger.save()
    assert lines(logger) == ["step,x", "0,1.0", "1,1.0", "2,1.0", ""]


@pytest.mark.parametrize(
    ("every", "steps", "written"),
    [(100, [49, 98], 0), (100, [49, 99], 2), (3, [0, 5, 6], 2), (2, [10, 20, 30], 2), (1, [0, 7], 2)],
)
def test_flush_every_n_steps(every: int, steps: list[int], written: int, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, flush_logs_every_n_steps=every)
    for step in steps:
        logger.log_metrics({"x": 1.0}, step)
    assert logger.experiment.rows_written == written
    assert Path(logger.experiment.metrics_file_path).exists() == bool(written)


def test_flush_every_zero_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        CSVLogger(tmp_path, flush_logs_every_n_steps=0)


def test_a_row_cut_short_by_a_kill_is_removed_on_resume(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path, version=0)
    logger.log_metrics({"loss": 0.125}, step=0)
    logger.save()
    with open(logger.experiment.metrics_file_path, "a") as file:
        file.write("0.06")
    resumed = CSVLogger(tmp_path, version=0)
    with pytest.warns(UserWarning, match="cut short.*0.06"):
        resumed.log_metrics({"loss": 0.5}, step=1)
    resumed.save()
    assert lines(resumed) == ["loss,step", "0.125,0", "0.5,1", ""]


def test_a_file_that_lightning_wrote_is_continued(tmp_path: Path) -> None:
    directory = tmp_path / "lightning_logs" / "version_0"
    directory.mkdir(parents=True)
    (directory / "metrics.csv").write_bytes(b"epoch,loss,step\r\n0,0.5,0\r\n")
    logger = CSVLogger(tmp_path, version=0)
    logger.log_metrics({"epoch": 0, "loss": 0.25}, 1)
    logger.save()
    with open(logger.experiment.metrics_file_path, newline="") as file:
        assert list(csv.reader(file)) == [["epoch", "loss", "step"], ["0", "0.5", "0"], ["0", "0.25", "1"]]


def test_rows_are_appended_not_rewritten(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"x": 1.0, "y": 1.0}, 0)
    logger.save()
    inode = os.stat(logger.experiment.metrics_file_path).st_ino
    logger.log_metrics({"y": 2.0}, 1)
    logger.save()
    assert os.stat(logger.experiment.metrics_file_path).st_ino == inode
    assert lines(logger)[-2:] == ["1,,2.0", ""]


@pytest.mark.parametrize("late", [{}, {"new": 1.0}], ids=["append", "new column"])
def test_a_failed_write_leaves_the_file_and_the_rows(
    late: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = CSVLogger(tmp_path)
    logger.log_metrics({"x": 1.0}, 0)
    logger.save()
    before = lines(logger)
    logger.log_metrics({"x": 2.0, **late}, 1)
    real_open = open

    class FullDisk:
        """Takes half of what is written, as a disk that fills up does."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self.file = real_open(*args, **kwargs)

        def __enter__(self) -> "FullDisk":
            return self

        def __exit__(self, *exception: object) -> None:
            self.file.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def write(self, data: bytes) -> int:
            self.file.write(data[: len(data) // 2])
            if self.file.name.endswith(".tmp"):
                raise OSError(28, "No space left on device")
            return len(data) // 2

    with monkeypatch.context() as patch:
        patch.setattr(_files, "open", FullDisk, raising=False)
        with pytest.raises(OSError, match="disk full|No space"):
            logger.save()
    assert lines(logger) == before
    assert os.listdir(logger.log_dir) == ["metrics.csv"]
    logger.save()
    assert len(lines(logger)) == len(before) + 1


WRITE_FOREVER = """
import itertools, sys
from systolic.loggers import CSVLogger
logger = CSVLogger(sys.argv[1], version=0)
for step in itertools.count():
    logger.log_metrics({f"metric_{step // 50 % 40}": step, "fixed": step}, step)
    logger.save()
    if step == 100:
        print("ready", flush=True)
"""


@pytest.mark.tables
def test_the_file_is_whole_after_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").open(newline="") as file:
        header, *rows = list(csv.reader(file))
    assert {len(row) for row in rows} == {len(header)}
    assert [int(row[header.index("step")]) for row in rows] == list(range(len(rows)))
    assert len(rows) > 100
