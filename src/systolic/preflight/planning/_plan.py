"""A plan: the ways to run that were found, with the ways to show them."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType

from ._found import PlanFindings
from ._model import MARGIN, MARGIN_NEAR
from ._outcome import Outcome
from ._render import render


class Plan(PlanFindings):
    """Ways to run a script's training, compared; print it with rich. `PlanFindings` names the values."""

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
