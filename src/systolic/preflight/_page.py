"""Reports as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from ..utilities._html import document, table
from ._figures import figures_of
from ._model import Figure, Findings
from ._pictures import PARTS, memory_bar, roofline
from ._render import headline, quantity, short_line

_STYLE = """
:root { --parameters: #1f77c9; --optimizer: #8250c8; --other: #8d97a8; --batch: #2a9d6f; --temporaries: #d98e04;
  --rest: #b5651d; --free: #e3e6ec; --limit: #c62828; --memory: #d98e04; --compute: #1f77c9; --step: #c62828 }
@media (prefers-color-scheme: dark) { :root { --free: #2c323d } }
.parameters { fill: var(--parameters) } .optimizer { fill: var(--optimizer) } .other { fill: var(--other) }
.batch { fill: var(--batch) } .temporaries { fill: var(--temporaries) } .rest { fill: var(--rest) } .free { fill: var(--free) }
.limit { stroke: var(--limit); stroke-width: 2 } .roof { fill: none; stroke: var(--ink); stroke-width: 2 }
circle { fill-opacity: 0.8 } circle.memory { fill: var(--memory) } circle.compute { fill: var(--compute) }
circle.step { fill: var(--step) }
.bad { color: var(--limit) } pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 12px }
table.figures td:last-child { text-align: left; color: var(--dim); white-space: normal }
table.figures td:first-child { white-space: normal; overflow-wrap: anywhere }
"""


def page(reports: Sequence[Findings], comparison: str = "") -> str:
    """The whole page.

    Args:
        reports: one or several, at least one.
        comparison: HTML that stands before them.
    """
    title = f"Preflight: {reports[0].model}"
    parts = [f"<h1>{escape(title)}</h1>", comparison]
    for report in reports:
        parts += _report(report)
    return document(title, parts, _STYLE)


def _report(report: Findings) -> Iterator[str]:
    yield f'<h2 class="{"good" if report.fits else "bad"}">{escape(headline(report).plain)}</h2>'
    yield memory_bar(report.memory)
    yield f"<p>{''.join(_key(kind, name) for kind, name in (*PARTS, ('free', 'free')))}</p>"
    if report.refusal:
        yield f"<pre>{escape(report.refusal)}</pre>"
    if report.time is not None and report.work is not None and report.work.bytes_moved and report.work.flops:
        yield "<h2>Roofline</h2>"
        yield roofline(report)
        kinds = (("step", "the whole step"), ("memory", "product bound by memory"), ("compute", "product bound by arithmetic"))
        yield f"<p>{''.join(_key(kind, name) for kind, name in kinds)}</p>"
    yield from _advice(report)
    if report.operations:
        yield "<h2>Longest operations</h2>"
        yield _operations(report)
    for title in dict.fromkeys(figure.group for figure in figures_of(report)):
        yield f"<h2>{escape(title[:1].upper() + title[1:])}</h2>"
        yield _figures([figure for figure in figures_of(report) if figure.group == title])
    yield from (f'<p class="dim">note: {escape(note)}</p>' for note in report.notes)


def _key(kind: str, name: str) -> str:
    return f'<span class="key" style="background: var(--{kind})"></span>{name}'


def _advice(report: Findings) -> Iterator[str]:
    if report.advice:
        yield "<h2>Advice</h2>"
    for one in report.advice:
        yield f"<p><b>{escape(one.topic)}</b>: {escape(one.text)}</p>"
        if one.evidence:
            yield _figures(one.evidence)


def _operations(report: Findings) -> str:
    rows = [[one.name, f"{one.cycles:,}", f"{one.share:.1%}", one.module, short_line(one.line)] for one in report.operations]
    return table(["operation", "cycles", "share", "module", "line"], rows, "names")


def _figures(figures: Sequence[Figure]) -> str:
    return table([], [[one.name, quantity(one.value, one.unit), one.source] for one in figures], "figures")
