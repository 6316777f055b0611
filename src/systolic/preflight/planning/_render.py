"""A plan on the terminal, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from .._render import quantity
from ._found import Choice, PlanFindings
from ._goals import missed
from ._model import MARGIN, MARGIN_NEAR
from ._outcome import Outcome
from ._space import Cell

_COLUMNS = ("slice", "strategy", "remat", "batch", "step", "util", "HBM", "run", "USD", "figures")


def render(plan: PlanFindings) -> Iterator[RenderableType]:
    """The parts of a printed plan."""
    length = plan.terms.length.source
    yield Text.assemble((f"{plan.model}, {plan.precision}, {plan.terms.global_batch} samples for an update, {length}", "bold"))
    yield Text("Every figure is a prediction for the steps alone: loading, validation and checkpoints are not in it.")
    for goal, choice in _merged(plan.choices):
        yield from _choice(goal, choice)
    if not plan.choices:
        yield from _nothing(plan)
    rows = [*plan.compiled, *plan.modelled]
    if rows:
        yield Text()
        yield _table(rows)
        yield Text(
            "batch: samples per core x batches for an update. figures: compiled by the TPU compiler, or the cost model's.",
            style="dim",
        )
    yield Text(_account(plan), style="dim")
    for note in plan.notes:
        yield Text(f"note: {note}")


def _merged(choices: Iterable[Choice]) -> list[tuple[str, Choice]]:
    """One way that is the best for both goals stands there once."""
    found: dict[Cell, list[Choice]] = {}
    for choice in choices:
        found.setdefault(choice.outcome.cell, []).append(choice)
    return [(" and ".join(c.goal for c in same), max(same, key=lambda c: c.rivals)) for same in found.values()]


def _choice(goal: str, choice: Choice) -> Iterator[RenderableType]:
    one, terms = choice.outcome, choice.outcome.terms
    within = f" within {quantity(terms.deadline, 's')}" if terms.deadline is not None else ""
    within += f" within {quantity(terms.budget, 'USD')}" if terms.budget is not None else ""
    title = f"{goal}{within}" if choice.keeps_terms else f"NOTHING{within}; what comes closest"
    yield Text()
    yield Text.assemble((f"{title}: ", "bold" if choice.keeps_terms else "bold red"), one.cell.slice.name)
    yield Text(
        f" {quantity(one.step, 's')} an update x {one.updates:,} = {quantity(one.seconds, 's')}, {_usd(one)}; "
        f"utilization {one.utilization:.0%}, HBM {one.percent:.0f}%, {'compiled' if one.prediction.compiled else 'modelled'}"
    )
    if not choice.keeps_terms:
        yield Text(f" {_change(one)}")
    if choice.rivals:
        yield Text(f" {choice.rivals} ways that were not compiled may be better by the model: --compile asks about more.")
    yield from _arguments(one)


def _arguments(one: Outcome) -> Iterator[Text]:
    """Lines to paste."""
    given, hosts = one.arguments(), one.cell.slice.hosts
    words = [f"{name}={value!r}".replace("'", '"') for name, value in given.items()]
    note = f"  # devices of each of {hosts} hosts" if hosts > 1 else ""
    yield Text(f"    Trainer({', '.join(words[:3])},{note}", style="cyan", no_wrap=True)
    yield Text(f"            {', '.join(words[3:])})", style="cyan", no_wrap=True)
    yield Text(f"    DataLoader(..., batch_size={one.cell.core_batch})", style="cyan", no_wrap=True)


def _change(one: Outcome) -> str:
    """Changes by which a way would keep the terms."""
    terms, by = one.terms, missed(one)
    if terms.deadline is not None:
        return (
            f"It takes {by:.0%} too long: allow {quantity(one.seconds, 's')}, look at larger slices, or train for fewer steps."
        )
    if one.cost is None:
        return "No price is known: give one with --price."
    return f"It costs {by:.0%} too much: allow {quantity(one.cost, 'USD')}, or train for fewer steps."


def _nothing(plan: PlanFindings) -> Iterator[Text]:
    yield Text()
    yield Text("NOTHING FITS", style="bold red")
    one = plan.closest
    if one is None:
        return
    found = one.prediction
    source = "the compiler" if found.compiled else "the cost model"
    yield Text(
        f" What comes closest is {one.cell}: by {source} it needs {quantity(found.memory, 'bytes')} on each core, of "
        f"{quantity(found.capacity, 'bytes')}. Look at larger slices or another generation, --strategies fsdp, --remat full, "
        "bf16-mixed, or a global batch that allows fewer samples on each core."
    )


def _table(rows: list[Outcome]) -> Table:
    table = Table(
        title="alternatives", title_justify="left", title_style="bold", box=None, padding=(0, 1, 0, 0), pad_edge=False
    )
    for number, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if number < 3 or name == "figures" else "right", no_wrap=True)
    for one in rows:
        found, cell = one.prediction, one.cell
        batch = f"{cell.core_batch}x{cell.accumulation}"
        first = (cell.slice.name, cell.strategy, cell.remat, batch)
        hbm = f"{one.percent:.0f}%"
        if found.refused:
            table.add_row(*first, "-", "-", hbm, "-", "-", "no room", style="dim")
        else:
            figures = (_short(one.step), f"{one.utilization:.0%}", hbm, _short(one.seconds), _dollars(one))
            table.add_row(*first, *figures, "compiled" if found.compiled else "model")
    return table


def _short(seconds: float) -> str:
    return quantity(seconds, "s").replace(" ", "")


def _dollars(one: Outcome) -> str:
    return "?" if one.cost is None else quantity(one.cost, "USD").removesuffix(" USD")


def _usd(one: Outcome) -> str:
    return "price unknown" if one.cost is None else quantity(one.cost, "USD")


def _account(plan: PlanFindings) -> str:
    """Account of what was done for the plan, and of how far the model was off."""
    model, search = plan.programs
    text = (
        f"{plan.space} ways; {plan.hopeless} cannot fit by the model. Compiled: {model} for the model, {search} by the search."
    )
    if plan.errors is not None:
        low, high = plan.errors
        text += f" Where it could be compared, the model was off by {low:+.0%} to {high:+.0%}"
        text += f"; the search allows it {MARGIN_NEAR:.0%}, and {MARGIN:.0%} where nothing alike was compiled."
    return text
