"""The debug report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ._charts import milliseconds, per_step, timeline
from ._metrics import PERCENTILES
from ._recorder import Recorder, Step
from ._units import size

_NEIGHBOURS = 12

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --dim: #6a7385; --line: #d9dde6; --page: #fbfbfd; --card: #fff;
  --wait: #d98e04; --compile: #8250c8; --execute: #1f77c9; --host: #8d97a8; --idle: #e3e6ec }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --dim: #97a0b3; --line: #333a48; --page: #14171d;
  --card: #1c2028; --host: #7a8498; --idle: #2c323d } }
body { margin: 0 auto; max-width: 1040px; padding: 24px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 22px; margin: 0 0 4px } h2 { font-size: 17px; margin: 32px 0 8px }
p { margin: 4px 0 } .dim { color: var(--dim); fill: var(--dim) }
svg { width: 100%; background: var(--card); border: 1px solid var(--line); border-radius: 6px; margin: 4px 0 12px }
svg text { font-size: 11.5px; fill: var(--ink) } svg text.dim { fill: var(--dim); font-size: 10.5px }
svg .axis { stroke: var(--line) }
.wait { fill: var(--wait) } .compile { fill: var(--compile) } .execute { fill: var(--execute) } .host { fill: var(--host) }
.idle { fill: var(--idle) }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin: 0 5px 0 14px }
table { border-collapse: collapse; width: 100%; background: var(--card); font-variant-numeric: tabular-nums }
th, td { border-bottom: 1px solid var(--line); padding: 4px 7px; font-size: 13px; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left }
table.names td:first-child { white-space: normal; overflow-wrap: anywhere }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px }
"""


def page(recorder: Recorder, title: str, facts: dict[str, Any]) -> str:
    """The whole page.

    Args:
        recorder: what was measured.
        title: the page's heading.
        facts: what to say about the run (devices, versions), by name.
    """
    steps = [step for step in recorder.steps() if step.done]
    main = [step for step in steps if step.stage == "training"] or steps
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="dim">{escape(" · ".join(f"{name} {value}" for name, value in facts.items()))}</p>',
        f"<p>{escape(headline(main))}</p>",
    ]
    if main:
        parts += ["<h2>What each step spent its time on (logarithmic)</h2>", per_step(main), _legend()]
        parts += [f"<h2>The first {min(_NEIGHBOURS, len(main))} steps</h2>", timeline(main[:_NEIGHBOURS])]
    if len(main) > _NEIGHBOURS:
        parts += [f"<h2>The last {_NEIGHBOURS} steps</h2>", timeline(main[-_NEIGHBOURS:])]
    parts += ["<h2>Metrics</h2>", _metrics(recorder), "<h2>Counters</h2>", _counters(recorder)]
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    return (
        f"<!doctype html><html lang='en'><head>{head}<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


def headline(steps: Sequence[Step]) -> str:
    """One sentence on where the time went."""
    if not steps:
        return "No step was run."
    span = max(step.done for step in steps) - min(step.wait_began for step in steps)
    shares = {
        "waiting for data": sum(step.wait for step in steps),
        "compiling": sum(step.compile for step in steps),
        "host work": sum(step.host for step in steps),
    }
    said = ", ".join(f"{100 * seconds / span:.1f}% {name}" for name, seconds in shares.items())
    busy = 100 * sum(step.execute for step in steps) / span
    middle = sorted(step.done - step.wait_began for step in steps)[len(steps) // 2]
    return (
        f"{len(steps)} {steps[0].stage} steps in {milliseconds(span)}, median {milliseconds(middle)} a step. The host spent "
        f"{said}. The devices were busy {busy:.1f}% of the time."
    )


def _legend() -> str:
    names = {
        "wait": "waiting for data",
        "compile": "compiling",
        "execute": "executing",
        "host": "host work",
        "idle": "the call itself, or waiting for the devices",
    }
    keys = [f'<span class="key" style="background: var(--{kind})"></span>{name}' for kind, name in names.items()]
    return f"<p>{''.join(keys)}</p>"


def _metrics(recorder: Recorder) -> str:
    found = recorder.metrics.as_dict()["metrics"]
    header = ["Metric", "TotalSamples", "Accumulator", *(f"{p}%" for p in PERCENTILES)]
    rows = [
        [name, str(one["total_samples"]), milliseconds(one["accumulator"]), *map(milliseconds, one["percentiles"].values())]
        for name, one in found.items()
    ]
    return _table(header, rows)


def _counters(recorder: Recorder) -> str:
    counters = recorder.metrics.as_dict()["counters"]
    shown = {name: size(value) if name.startswith("Bytes") else str(value) for name, value in counters.items()}
    return _table(["Counter", "Value"], [[name, value] for name, value in shown.items()], "names")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "numbers") -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in header)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return f'<div class="scroll"><table class="{kind}">{"".join(f"<tr>{line}</tr>" for line in lines)}</table></div>'
