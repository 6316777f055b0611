"""A preflight's findings with the ways to show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType

from ._figures import figures_of
from ._model import Figure, Findings
from ._page import page
from ._render import render


class PreflightReport(Findings):
    """How one step would do on one slice; `Findings` names the values."""

    def figures(self) -> list[Figure]:
        """Every figure with its unit and how it was obtained, in the order of the printed report."""
        return list(figures_of(self))

    def to_dict(self) -> dict[str, object]:
        """The report as plain values, for JSON."""
        found = dataclasses.asdict(self)
        found["fits"] = self.fits
        found["figures"] = [dataclasses.asdict(figure) for figure in self.figures()]
        found["memory"] |= {"free": self.memory.free, "percent": self.memory.percent}
        return found

    def to_html(self) -> str:
        """The report as a page that needs nothing else, with a bar of HBM use and a roofline."""
        return page([self])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """How `rich.print(report)` shows it."""
        yield from render(self, options.max_width)
