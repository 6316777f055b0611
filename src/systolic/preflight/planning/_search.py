"""Search for the best ways to run: the cost model says what to compile next, the compiler says what it is like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ...exceptions import MisconfigurationException
from ._goals import Goal, goals
from ._outcome import Outcome, Prediction
from ._space import Cell
from ._terms import Terms


class Model(Protocol):
    """Cost model, as far as a search uses it."""

    def predict(self, cell: Cell) -> Prediction:
        """Its best guess."""
        ...

    def optimistic(self, cell: Cell) -> Prediction:
        """Its guess, less the error that it may have."""
        ...

    def answered(self, cell: Cell, compiled: Prediction) -> None:
        """Take an answer of the compiler into account."""
        ...


class Search:
    """Ways to run, some of them compiled.

    Args:
        space: every way.
        model: predicts them.
        terms: of the run.
        answers: of the compiler, as far as there are some.

    Attributes:
        compiled: the compiler's answers about ways of the space.
        asked: how many ways were compiled by this search.
        notes: what could not be run.
    """

    def __init__(self, space: Sequence[Cell], model: Model, terms: Terms, answers: Mapping[Cell, Prediction]) -> None:
        self._space, self._model, self._terms = list(space), model, terms
        self.compiled = {cell: answers[cell] for cell in space if cell in answers}
        self.asked = 0
        self.notes: list[str] = []
        self._goals = goals(terms)

    def run(self, ask: Callable[[Cell], Prediction], most: int) -> None:
        """Compile the best ways by the model, until none of the others can be better, or a number of them is compiled.

        The goals take turns.

        Args:
            ask: compiles a way.
            most: how many ways to compile.
        """
        turn = 0
        while self.asked < most and (waiting := [cell for goal in self._goals if (cell := self.next(goal))]):
            cell = waiting[turn % len(waiting)]
            turn += 1
            try:
                answer = ask(cell)
            except MisconfigurationException as error:
                self._space.remove(cell)
                self.notes.append(f"without {cell}: {error}")
                continue
            self.asked += 1
            self.compiled[cell] = answer
            self._model.answered(cell, answer)

    def next(self, goal: Goal) -> Cell | None:
        """The best of the ways that may beat the best compiled one; None where there is none.

        What the model expects to fit comes before what it does not.
        """
        return min(self.rivals(goal), key=lambda cell: self._expected(cell, goal), default=None)

    def rivals(self, goal: Goal) -> list[Cell]:
        """Ways that are not compiled, and whose optimistic figures beat the best compiled one's."""
        best = self.best(goal)
        found = [(cell, self._model.optimistic(cell)) for cell in self._space if self._is_open(cell)]
        found = [(cell, hopes) for cell, hopes in found if hopes.fits]
        return [cell for cell, hopes in found if best is None or goal.rank(Outcome(cell, hopes, self._terms)) < goal.rank(best)]

    def best(self, goal: Goal) -> Outcome | None:
        """The best compiled way that fits."""
        return min((one for one in self.outcomes() if one.prediction.fits), key=goal.rank, default=None)

    def outcomes(self) -> list[Outcome]:
        """All compiled ways, also those that do not fit."""
        return [Outcome(cell, found, self._terms) for cell, found in self.compiled.items()]

    def modelled(self) -> list[Outcome]:
        """The other ways, by the model."""
        return [Outcome(one, self._model.predict(one), self._terms) for one in self._space if one not in self.compiled]

    def _expected(self, cell: Cell, goal: Goal) -> tuple[bool, tuple[float, float, float]]:
        found = self._model.predict(cell)
        return not found.fits, goal.rank(Outcome(cell, found, self._terms))

    def _is_open(self, cell: Cell) -> bool:
        """Whether the compiler might take it: it was not asked, and has refused no smaller one of its kind."""
        return cell not in self.compiled and not any(
            _is_smaller(other, cell) for other, found in self.compiled.items() if found.refused
        )


def _is_smaller(one: Cell, other: Cell) -> bool:
    """Whether a way needs no more memory than another."""
    same = (one.slice, one.strategy, one.remat) == (other.slice, other.strategy, other.remat)
    return same and one.core_batch <= other.core_batch and (one.accumulation == 1 or other.accumulation > 1)
