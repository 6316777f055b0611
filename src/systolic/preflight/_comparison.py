"""Several reports side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions
from rich.table import Table

from ..utilities._html import table
from ._model import Figure
from ._page import page
from ._render import quantity
from ._report import PreflightReport

_WIDE = 116
_LEFT_OUT = ("HBM", "used", "bound by", "USD/epoch")
"""Columns that terminals narrower than this have no room for."""


@dataclass(frozen=True)
class Comparison:
    """A table with one row for each report; print it with rich.

    Attributes:
        reports: what is compared, in this order.
    """

    reports: Sequence[PreflightReport]

    def header(self) -> list[str]:
        """Heading of each column."""
        return [figure.name for figure in next(iter(self._rows()), [])]

    def rows(self) -> list[list[str]]:
        """The cells, as people read them."""
        return [[quantity(figure.value, figure.unit) for figure in row] for row in self._rows()]

    def to_html(self) -> str:
        """The table and all reports as a page that needs nothing else."""
        return page(self.reports, table(self.header(), self.rows()))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        """How `rich.print` shows it."""
        header = self.header()
        shown = [n for n, name in enumerate(header) if options.max_width >= _WIDE or name not in _LEFT_OUT]
        grid = Table(box=None, padding=(0, 1))
        for number in shown:
            grid.add_column(header[number], justify="right" if number else "left", no_wrap=True)
        for row in self.rows():
            grid.add_row(*(row[number] for number in shown))
        yield grid

    def _rows(self) -> Iterator[list[Figure]]:
        for report in self.reports:
            time, memory = report.time, report.memory
            source = "the report's"
            yield [
                Figure("", "slice", report.slice.name, "", source),
                Figure("", "per core", report.batch.per_core, "", source),
                Figure("", "all cores", report.batch.total, "", source),
                Figure("", "fits", "yes" if report.fits else "NO", "", source),
                Figure("", "HBM", memory.total, "bytes", source),
                Figure("", "used", memory.percent, "%", source),
                Figure("", "step", time.step if time else "-", "s", source),
                Figure("", "bound by", time.bound if time else "-", "", source),
                Figure("", "utilization", 100 * time.utilization if time else "-", "%", source),
                Figure("", "samples/s", time.samples_per_second if time else "-", "", source),
                Figure("", "USD/epoch", time.epoch_cost if time else "-", "USD", source),
            ]
