"""Report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from ..utilities._html import document, table
from ._curves import CURVES_STYLE
from ._run_curves import logged_curves, memory_curves, step_curves
from ._run_file import METRICS_FILE, Document
from ._run_record import COMPILING, DEVICES, SAVING, WAITING
from ._units import size, spoken

_STYLE = (
    CURVES_STYLE
    + """
:root { --training: #1f77c9; --evaluation: #2a9d6f; --waiting: #d98e04; --compiling: #8250c8; --saving: #c2410c;
  --devices: #0e7490; --rest: #8d97a8 }
@media (prefers-color-scheme: dark) { :root { --training: #58a6ff; --evaluation: #4fc878; --waiting: #e3a92b;
  --compiling: #bc8cff; --saving: #f0883e; --devices: #39c5cf; --rest: #7a8498 } }
.bar { display: flex; height: 30px; border-radius: 6px; overflow: hidden; margin: 6px 0 8px }
.bar span { min-width: 1px } .status { font-size: 16px; margin: 12px 0 }
.run { margin-top: 40px; border-top: 2px solid var(--line) }
td { vertical-align: top } table.texts td, table.texts th { text-align: left; white-space: normal; overflow-wrap: anywhere }
table.texts td:last-child { min-width: 6em } table.shares td:first-child { white-space: normal }
h2 { scroll-margin-top: 12px } ul { margin: 4px 0; padding-left: 20px } li { overflow-wrap: anywhere }
table.compiles td:nth-child(3), table.compiles th:nth-child(3) { text-align: left }
table.compiles td:nth-child(3) { white-space: normal; overflow-wrap: anywhere; min-width: 14em }
table.checkpoints td:first-child { overflow-wrap: anywhere; white-space: normal; min-width: 12em }
"""
)

_ROWS = 20
"""A longer table shows the first ones and the newest."""

_COLORS = {WAITING: "waiting", COMPILING: "compiling", SAVING: "saving", DEVICES: "devices", "training steps": "training"}


def run_page(runs: Sequence[Document], metrics: dict[str, Any] | None, details: Sequence[str] = ()) -> str:
    """The whole page.

    Args:
        runs: at least one, oldest first.
        metrics: the curves of `metrics.csv` where there is one; else those are shown that the runs recorded.
        details: names of pages in the same directory that have every step, of runs with `profiler="xla"`.
    """
    last = runs[-1]
    title = f"{last['method']} of {last['model']}"
    parts = [f"<h1>{escape(title)}</h1>", f'<p class="dim">{escape(_facts(last))}</p>']
    if len(runs) > 1:
        others = ", ".join(f"{run['method']} ({_status_word(run)})" for run in runs[:-1])
        parts.append(f"<p>{len(runs)} runs of this directory, oldest first: {escape(others)}, and this {last['method']}.</p>")
    if len(runs) == 1:
        parts.append(_summary(last))
    parts += ["<h2>Logged values</h2>", *_logged(runs, metrics)]
    for run in runs:
        if len(runs) > 1:
            parts += [f'<h2 class="run">{escape(run["method"])}, {_date(run["started"])}</h2>', _summary(run)]
        parts += _run(run)
    parts += _about(details)
    return document(title, parts, _STYLE)


def _headline(run: Document) -> str:
    """A few sentences on what a run did, and how it ended."""
    sentences = [_status(run)]
    for stage, steps in run["steps"].items():
        middle, late = steps["percentiles"]["50"], steps["percentiles"]["95"]
        sentences.append(f"{steps['count']:,} {stage} steps, median {spoken(middle)}, 95% of them within {spoken(late)}.")
    waited, total = run["spent"].get(WAITING, 0.0), run["seconds"]
    if total > 0:
        sentences.append(f"{_share(waited, total)} of the time went to waiting for data.")
    return " ".join(sentences)


def _summary(run: Document) -> str:
    return f'<p class="status">{escape(_headline(run))}</p>'


def _run(run: Document) -> Iterator[str]:
    sections = {
        "Where the time went": _shares,
        "Steps": _steps,
        "Compilations": _compiles,
        "Memory": _memory,
        "Checkpoints": _checkpoints,
        "Host effects": _effects,
        "Advice": _advice,
    }
    for heading, section in sections.items():
        yield f"<h2>{heading}</h2>"
        yield from section(run)


def _advice(run: Document) -> Iterator[str]:
    yield from (f"<p>{escape(text)}</p>" for text in run["advice"])
    if not run["advice"]:
        yield "<p>None was given.</p>"


def _facts(run: Document) -> str:
    return " · ".join(f"{name} {value}" for name, value in run["facts"].items())


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _status_word(run: Document) -> str:
    return "not ended" if run["status"] == "running" else run["status"]


def _status(run: Document) -> str:
    took, place = spoken(run["seconds"]), f"epoch {run['epoch']}, step {run['global_step']:,}"
    if run["status"] == "finished":
        return f"Finished after {took}, at {place}."
    if run["status"] == "running":
        return (
            f"Has not said that it ended: last heard of {_date(run['updated'])}, after {took}, at {place}. It still runs, or "
            "it was killed."
        )
    return f"Ended after {took}, at {place}, by {run['error'] or 'an error'}."


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%"


def _logged(runs: Sequence[Document], metrics: dict[str, Any] | None) -> Iterator[str]:
    charts, left, odd = logged_curves(metrics if metrics is not None else _recorded(runs))
    if charts:
        yield f'<div class="charts">{"".join(charts)}</div>'
    else:
        yield "<p>Nothing was logged with <code>self.log</code>, or not yet.</p>"
    if left:
        yield f"<p>Not drawn, for want of room: {escape(', '.join(left))}.</p>"
    yield from (f"<p>{escape(text)}</p>" for text in odd)
    source = (
        f"From {METRICS_FILE}: everything that was sent to the logger."
        if metrics is not None
        else "As the run recorded them: what <code>self.log</code> sent to the loggers. What callbacks or your code sent to a "
        "logger themselves is in its own files; with a CSVLogger, it is here."
    )
    yield f'<p class="dim">{source} Long curves are means of neighbours, with the band from the smallest to the largest.</p>'


def _recorded(runs: Sequence[Document]) -> dict[str, Any]:
    """Curves of several runs: a run that went on from another's checkpoint goes on with its curve."""
    found: dict[str, Any] = {}
    for run in runs:
        for name, series in run["values"].items():
            known = found.setdefault(name, {"points": [], "not_finite": 0, "first_not_finite": None})
            known["points"] = sorted([*known["points"], *series["points"]], key=lambda point: point[0])
            known["not_finite"] += series["not_finite"]
            if known["first_not_finite"] is None:
                known["first_not_finite"] = series["first_not_finite"]
    return found


def _shares(run: Document) -> Iterator[str]:
    total = max(run["seconds"], 1e-9)
    spent = dict(sorted(run["spent"].items(), key=lambda item: -item[1]))
    spent["everything else: hooks, logging, the end"] = max(total - sum(spent.values()), 0.0)
    bars = "".join(
        f'<span style="flex: {seconds / total:.5f}; background: var(--{_color(name)})" '
        f'title="{escape(name)}: {spoken(seconds)}"></span>'
        for name, seconds in spent.items()
    )
    yield f'<div class="bar" role="img" aria-label="shares of the time">{bars}</div>'
    rows = "".join(
        f'<tr><td><span class="key" style="background: var(--{_color(name)}); margin-left: 0"></span>{escape(name)}</td>'
        f"<td>{spoken(seconds)}</td><td>{_share(seconds, total)}</td></tr>"
        for name, seconds in spent.items()
    )
    yield f'<div class="scroll"><table class="shares">{rows}</table></div>'
    yield (
        '<p class="dim">By the host\'s clock, and nothing counted twice. A step is the time from asking for one batch to '
        "asking for the next, less the wait. The host runs ahead of the devices until it has to wait for one of them, so the "
        "mean of many steps is the devices' pace, and a single one may not be.</p>"
    )


def _color(name: str) -> str:
    return _COLORS.get(name, "evaluation" if name.split()[0] in ("validation", "test", "predict") else "rest")


def _steps(run: Document) -> Iterator[str]:
    if not run["steps"]:
        yield "<p>No step was run, or none but those that compiled.</p>"
        return
    yield f'<div class="charts">{"".join(step_curves(run["steps"]))}</div>'
    header = ["", "steps", "mean", "5%", "median", "95%", "99%", "wait for data, mean", "share of the step"]
    rows = []
    for stage, steps in run["steps"].items():
        count, percentiles = steps["count"], steps["percentiles"]
        rows.append(
            [stage, f"{count:,}", spoken(steps["seconds"] / count)]
            + [spoken(percentiles[p]) for p in ("5", "50", "95", "99")]
            + [spoken(steps["waited"] / count), _share(steps["waited"], max(steps["seconds"], 1e-9))]
        )
    yield table(header, rows)
    yield '<p class="dim">Without the steps that compiled; percentiles are known to 2.5%.</p>'


def _compiles(run: Document) -> Iterator[str]:
    found = run["compiles"]
    if not found["count"]:
        yield "<p>Nothing was compiled" + (": steps ran in eager PyTorch.</p>" if not run["compiled"] else ".</p>")
        return
    header = ["stage", "step", "cause", "after", "tracing", "XLA", "memory planned on each device"]
    rows = [
        [
            one["stage"],
            f"{one['step']:,}",
            one["reason"],
            spoken(one["at"]),
            spoken(one["trace"]),
            _xla(one),
            _planned(one["memory"]) if one["is_new"] else "",
        ]
        for one in _first_and_newest(found["events"])
    ]
    yield table(header, rows, "compiles")
    yield f"<p>{found['count']} in all, {spoken(found['seconds'])} together.{_left_out(found['count'], rows)}</p>"


def _first_and_newest(events: list[Any]) -> list[Any]:
    return events if len(events) <= _ROWS else [*events[: _ROWS // 2], *events[-_ROWS // 2 :]]


def _left_out(count: int, rows: list[list[str]]) -> str:
    left = count - len(rows)
    return f" {left} between the first and the newest {_ROWS // 2} are left out here." if left else ""


def _xla(one: dict[str, Any]) -> str:
    if not one["is_new"]:
        return "had it"
    kept = f", {spoken(one['saved'])} less: kept from an earlier run" if one["saved"] >= 1 else ""
    return spoken(one["compile"]) + kept


def _planned(memory: dict[str, int] | None) -> str:
    if memory is None:
        return "not told"
    return f"{size(sum(memory.values()))}, {size(memory['temporaries'])} of it between"


def _memory(run: Document) -> Iterator[str]:
    planned = [sum(one["memory"].values()) for one in run["compiles"]["events"] if one["memory"] is not None]
    if planned:
        yield f"<p>The largest program takes {size(max(planned))} on each device, as XLA plans it.</p>"
    else:
        yield "<p>XLA told of no plan for a program.</p>"
    charts = memory_curves(run["memory"])
    if charts:
        yield f'<div class="charts">{"".join(charts)}</div>'
    if not any(name.startswith("device") for name in run["memory"]):
        yield (
            "<p>The devices told of no bytes in use: simulated cores, and eager PyTorch, have no memory of their own. "
            + ("Their share lies in the memory of the process, which is shown.</p>" if charts else "</p>")
        )


def _checkpoints(run: Document) -> Iterator[str]:
    found = run["checkpoints"]
    if not found["count"]:
        yield "<p>None was saved.</p>"
        return
    rows = [
        [
            one["path"].removeprefix(run["directory"] + "/") if run["directory"] else one["path"],
            f"{one['step']:,}",
            spoken(one["at"]),
            spoken(one["seconds"]) + (", and on in the background" if one["background"] else ""),
            "not known" if one["bytes"] is None else size(one["bytes"]),
        ]
        for one in _first_and_newest(found["events"])
    ]
    yield table(["path", "step", "after", "training stood still", "size"], rows, "checkpoints")
    more = _left_out(found["count"], rows)
    yield f"<p>{found['count']} saved, {spoken(found['seconds'])} together.{more} Some may have been deleted since.</p>"


def _effects(run: Document) -> Iterator[str]:
    lines = [f"{text} ({one['stage']})" for one in run["compiles"]["events"] for text in one["effects"]]
    if lines:
        yield "<p>What the host repeats after every step; where it needs the step's values, it waits for them:</p>"
        yield f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in dict.fromkeys(lines))}</ul>"
    elif run["compiled"]:
        yield "<p>The steps leave nothing to do on the host.</p>"
    reads = run["reads"]
    if reads is None:
        yield (
            "<p>Lines that read values from the devices are not known: they are watched in <code>fit</code>, with "
            "<code>advice=True</code>.</p>"
        )
    elif reads:
        rows = [
            [line, f"{count:,}", spoken(seconds)] for line, (count, seconds) in sorted(reads.items(), key=lambda r: -r[1][1])
        ]
        yield table(["line that read values from the devices while training", "times", "the host waited"], rows, "names")
    else:
        yield "<p>No line of yours read a value from the devices between training steps.</p>"


def _about(details: Sequence[str]) -> Iterator[str]:
    yield "<h2>What is not here</h2>"
    if details:
        links = ", ".join(f'<a href="{escape(name)}">{escape(name)}</a>' for name in details)
        yield f"<p>How long the devices took for each step, and what the host did meanwhile: {links}.</p>"
    else:
        yield (
            '<p>How long the devices took for each step: that is measured with <code>Trainer(profiler="xla")</code>, which '
            "writes a page of its own beside this one.</p>"
        )
