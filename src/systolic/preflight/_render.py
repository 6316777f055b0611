"""A report on the terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ._figures import figures_of
from ._model import Advice, Figure, Findings

_WIDE = 110
"""Columns from which on a terminal shows how figures were obtained."""


def render(report: Findings, width: int) -> Iterator[RenderableType]:
    """The parts of a printed report.

    Args:
        report: what to show.
        width: columns of the terminal.
    """
    yield headline(report)
    yield _bar(report)
    for title, figures in _groups(list(figures_of(report))):
        yield _table(title, figures, sources=width >= _WIDE)
    if report.operations:
        yield _operations(report)
    for number, advice in enumerate(report.advice, 1):
        yield _advice(number, advice, sources=width >= _WIDE)
    if width < _WIDE:
        yield Text(f"How each figure was obtained is shown in terminals of {_WIDE} columns, and with --json.", style="dim")
    for note in report.notes:
        yield Text(f"note: {note}")
    if report.refusal:
        yield Text(report.refusal, style="red")


def headline(report: Findings) -> Text:
    what = {"train": "training step", "predict": "prediction step"}.get(report.stage, f"{report.stage} step")
    verdict = ("fits", "bold green") if report.fits else ("DOES NOT FIT", "bold red")
    subject = f"{report.model}, {what}, {report.precision}, {report.batch.per_core} samples per core, on {report.slice.name}: "
    return Text.assemble((subject, "bold"), verdict)


_BAR_CELLS = 40


def _bar(report: Findings) -> Text:
    memory = report.memory
    filled = min(_BAR_CELLS, round(_BAR_CELLS * memory.total / memory.capacity))
    style = "red" if not report.fits else "yellow" if memory.percent > 90 else "green"
    amounts = f" {quantity(memory.total, 'bytes')} of {quantity(memory.capacity, 'bytes')} HBM per core ({memory.percent:.1f}%)"
    return Text.assemble(("█" * filled, style), ("░" * (_BAR_CELLS - filled), "dim"), amounts)


def _groups(figures: list[Figure]) -> Iterator[tuple[str, list[Figure]]]:
    for title in dict.fromkeys(figure.group for figure in figures):
        yield title, [figure for figure in figures if figure.group == title]


def _table(title: str | None, figures: list[Figure], *, sources: bool) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=False, padding=(0, 1))
    table.add_column(min_width=30)
    table.add_column(justify="right", min_width=14, no_wrap=True)
    table.add_column(style="dim")
    for figure in figures:
        table.add_row(figure.name, quantity(figure.value, figure.unit), figure.source if sources else "")
    return table


def _advice(number: int, advice: Advice, *, sources: bool) -> Group:
    text = Text.assemble((f"advice {number}, {advice.topic}: ", "bold"), advice.text)
    return Group(text, _table(None, list(advice.evidence), sources=sources))


def _operations(report: Findings) -> Group:
    table = Table(title="longest operations", title_justify="left", title_style="bold", box=None, padding=(0, 1))
    for heading, justify in (
        ("cycles", "right"),
        ("share", "right"),
        ("operation", "left"),
        ("module", "left"),
        ("line", "left"),
    ):
        table.add_column(heading, justify=justify, no_wrap=heading not in ("module", "line"))  # type: ignore[arg-type]
    for one in report.operations:
        table.add_row(f"{one.cycles:,}", f"{one.share:.1%}", one.name, one.module, short_line(one.line))
    return Group(table)


def short_line(line: str) -> str:
    """Relative to where the user is, where that is shorter."""
    path, _, number = line.rpartition(":")
    return min(line, f"{os.path.relpath(path)}:{number}", key=len) if path else ""


_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SCALED = ("FLOP", "FLOP/s", "B/s")


def quantity(value: float | int | str | None, unit: str) -> str:
    """A value with its unit, as people write it: `1.50 GiB`, `12.3 ms`, `unknown`."""
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    if unit == "bytes":
        size, name = next(((s, n) for s, n in _BYTES if abs(value) >= s), (1, "B"))
        return f"{value / size:,.2f} {name}" if size > 1 else f"{value:,.0f} B"
    if unit in _SCALED:
        size, prefix = next(((s, p) for s, p in _PREFIXES if abs(value) >= s), (1.0, ""))
        return f"{value / size:.3g} {prefix}{unit}"
    if unit == "s":
        return _seconds(value)
    if unit == "USD":
        return f"{value:,.2f} USD" if value >= 0.01 else f"{value:.2g} USD"
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"
    return f"{text} {unit}".strip()


def _seconds(value: float) -> str:
    if value >= 7200:
        return f"{value / 3600:,.1f} h"
    if value >= 120:
        return f"{value / 60:.1f} min"
    size, name = next(((s, n) for s, n in ((1.0, "s"), (1e-3, "ms")) if value >= s), (1e-6, "us"))
    return f"{value / size:.3g} {name}"
