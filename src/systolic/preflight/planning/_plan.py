"""A plan: the ways to run that were found, what each would take and cost, and how these figures were obtained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType

from ._goals import missed
from ._model import MARGIN, MARGIN_NEAR
from ._outcome import Outcome
from ._render import render
from ._terms import Terms


@dataclass(frozen=True)
class Choice:
    """The best way for one goal.

    Attributes:
        goal: "cheapest" or "fastest".
        outcome: what was found.
        rivals: how many ways that were not compiled may be better by the model; 0: the search is finished.
    """

    goal: str
    outcome: Outcome
    rivals: int

    @property
    def keeps_terms(self) -> bool:
        """Whether it is done by the deadline, and within the budget."""
        return not missed(self.outcome)


@dataclass(frozen=True)
class Plan:
    """Ways to run a script's training, compared; print it with rich.

    Attributes:
        model: the module's class.
        precision: the Trainer's.
        terms: of the run.
        choices: the best ways; empty where nothing fits.
        compiled: every way that was compiled, best first, also what the compiler refused.
        modelled: of each slice without one of these the best way by the cost model.
        closest: where nothing fits, what lacks least memory.
        space: how many ways there are.
        hopeless: how many of them cannot fit by the model.
        programs: how many ways were compiled for the cost model, and how many by the search.
        errors: the model's least and largest error where a way was compiled, as shares; None where none was.
        notes: what the reader should know.
    """

    model: str
    precision: str
    terms: Terms
    choices: tuple[Choice, ...]
    compiled: tuple[Outcome, ...]
    modelled: tuple[Outcome, ...]
    closest: Outcome | None
    space: int
    hopeless: int
    programs: tuple[int, int]
    errors: tuple[float, float] | None
    notes: tuple[str, ...] = ()

    @property
    def succeeds(self) -> bool:
        """Whether there is a way that fits and keeps the terms."""
        return bool(self.choices) and all(choice.keeps_terms for choice in self.choices)

    def to_dict(self) -> dict[str, object]:
        """The plan as plain values, for JSON."""
        return {
            "model": self.model,
            "precision": self.precision,
            "global_batch": self.terms.global_batch,
            "length": self.terms.length.source,
            "deadline": self.terms.deadline,
            "budget": self.terms.budget,
            "succeeds": self.succeeds,
            "choices": {
                choice.goal: _row(choice.outcome) | {"rivals": choice.rivals, "keeps_terms": choice.keeps_terms}
                for choice in self.choices
            },
            "alternatives": [_row(one) for one in (*self.compiled, *self.modelled)],
            "closest": None if self.closest is None else _row(self.closest),
            "space": self.space,
            "hopeless": self.hopeless,
            "programs": {"for the model": self.programs[0], "by the search": self.programs[1]},
            "errors": self.errors,
            "margins": (MARGIN, MARGIN_NEAR),
            "notes": list(self.notes),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """How `rich.print(plan)` shows it."""
        yield from render(self)


def _row(one: Outcome) -> dict[str, object]:
    """Seconds, bytes and USD of one way."""
    cell, found = one.cell, one.prediction
    return {
        "slice": cell.slice.name,
        "strategy": cell.strategy,
        "remat": cell.remat,
        "batch_size": cell.core_batch,
        "accumulate_grad_batches": cell.accumulation,
        "source": "compiled" if found.compiled else "modelled",
        "fits": found.fits,
        "memory": found.memory,
        "capacity": found.capacity,
        "step": None if found.refused else one.step,
        "utilization": None if found.refused else one.utilization,
        "updates": one.updates,
        "seconds": None if found.refused else one.seconds,
        "cost": None if found.refused else one.cost,
        "price_per_hour": one.terms.price(cell.slice),
        "price_source": one.terms.price_source(cell.slice),
        "arguments": one.arguments(),
    }
