"""The debug report as one HTML page that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from ..utilities._html import document, table
from ._charts import milliseconds, per_step, timeline
from ._metrics import PERCENTILES
from ._recorder import Recorder, Step
from ._units import size

_NEIGHBOURS = 12

_STYLE = """
:root { --wait: #d98e04; --compile: #8250c8; --execute: #1f77c9; --host: #8d97a8; --idle: #e3e6ec }
@media (prefers-color-scheme: dark) { :root { --host: #7a8498; --idle: #2c323d } }
.wait { fill: var(--wait) } .compile { fill: var(--compile) } .execute { fill: var(--execute) } .host { fill: var(--host) }
.idle { fill: var(--idle) }
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
    return document(title, parts, _STYLE)


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
    return table(header, rows)


def _counters(recorder: Recorder) -> str:
    counters = recorder.metrics.as_dict()["counters"]
    shown = {name: size(value) if name.startswith("Bytes") else str(value) for name, value in counters.items()}
    return table(["Counter", "Value"], [[name, value] for name, value in shown.items()], "names")
