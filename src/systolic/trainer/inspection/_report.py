"""Report of what a Trainer has done, as a page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...diagnostics import RUN_FILE, Document, read_metrics, read_runs, run_page
from ...distributed import is_main_process
from ...exceptions import MisconfigurationException
from ...utilities._private import make_directories
from .._recorded import documents, run_directory

if TYPE_CHECKING:
    from .._run import Run

REPORT_FILE = "report.html"
_DETAILS = "*-xla_profile.html"


def report(run: Run, path: str | os.PathLike[str] | None) -> Path:
    """Write the report of a Trainer's runs; of several processes the first one writes.

    Args:
        run: the run that its Trainer shows.
        path: the page; None puts it into the run's directory.

    Raises:
        MisconfigurationException: nothing has run yet.
    """
    if run.call is None:
        raise MisconfigurationException(
            "trainer.report() tells of what ran, and nothing did yet. Expected: fit, validate, test or predict before it. For "
            "a run of another process: `systolic report DIR`."
        )
    directory = run_directory(run)
    target = Path(path) if path is not None else (directory or Path(run.config.default_root_dir)) / REPORT_FILE
    if is_main_process():
        runs, logged = documents(run), None
        if directory is not None:
            for logger in run.writers:
                logger.save()
            logged = read_metrics(directory)
        _write(target, runs, directory, logged)
    return target


def report_of(directory: Path, path: Path | None = None) -> Path:
    """Write the report of the runs that a directory tells of, from its files alone.

    Args:
        directory: of a run, such as `lightning_logs/version_0`.
        path: the page; None puts it into the directory.

    Raises:
        MisconfigurationException: the directory tells of no run, or the page cannot be put where it shall be.
    """
    runs = read_runs(directory)
    if not runs:
        raise MisconfigurationException(f"{directory / RUN_FILE} tells of no run. Expected: one at least. Run again.")
    target = path if path is not None else directory / REPORT_FILE
    _write(target, runs, directory, read_metrics(directory))
    return target


def _write(target: Path, runs: list[Document], directory: Path | None, logged: dict[str, object] | None) -> None:
    if target.is_dir():
        raise MisconfigurationException(
            f"The report cannot be written to {target}: that is a directory. Expected: the name of a file, such as "
            f"{target / REPORT_FILE}."
        )
    make_directories(target.parent)
    # links are relative: they hold where the page lies beside the others
    beside = directory is not None and target.parent.resolve() == directory.resolve()
    details = sorted(page.name for page in target.parent.glob(_DETAILS)) if beside else []
    target.write_text(run_page(runs, logged, details), encoding="utf-8")
