"""Pages that need nothing else: no scripts, no fonts, nothing to load."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --dim: #6a7385; --line: #d9dde6; --page: #fbfbfd; --card: #fff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --dim: #97a0b3; --line: #333a48; --page: #14171d;
  --card: #1c2028 } }
body { margin: 0 auto; max-width: 1040px; padding: 24px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 22px; margin: 0 0 4px } h2 { font-size: 17px; margin: 32px 0 8px }
p { margin: 4px 0 } .dim { color: var(--dim); fill: var(--dim) }
svg { width: 100%; background: var(--card); border: 1px solid var(--line); border-radius: 6px; margin: 4px 0 12px }
svg text { font-size: 11.5px; fill: var(--ink) } svg text.dim { fill: var(--dim); font-size: 10.5px }
svg .axis { stroke: var(--line) }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px 0 14px }
table { border-collapse: collapse; width: 100%; background: var(--card); font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: 4px 7px; font-size: 13px; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
table.names td:first-child { white-space: normal; overflow-wrap: anywhere }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px }
"""


def document(title: str, parts: Sequence[str], style: str) -> str:
    """A whole page.

    Args:
        title: of the window.
        parts: HTML of the body, one after the other.
        style: CSS behind that which all pages share.
    """
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f"<!doctype html><html lang='en'><head>{head}<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    """Rows of texts; a wide one scrolls.

    Args:
        header: a title for each column; none at all leaves the row of titles out.
        rows: the cells.
        kind: its class; "names" breaks the lines of the first column.
    """
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)] if header else []
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f'<div class="scroll"><table class="{kind}">{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'


def svg(width: int, height: int, shapes: Sequence[str], label: str) -> str:
    """A picture as wide as the page; `label` is read to those who do not see it."""
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">{"".join(shapes)}</svg>'
