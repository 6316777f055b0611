"""Values of a plan, which renderers read."""

from __future__ import annotations

from dataclasses import dataclass

from ._goals import missed
from ._outcome import Outcome
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
class PlanFindings:
    """Ways to run a script's training, compared.

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
