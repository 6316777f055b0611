"""The search, against trying every way, on tables of figures that stand for the compiler's answers."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from systolic.preflight import Cell, RunLength, slices_in
from systolic.preflight.planning._goals import goals, missed
from systolic.preflight.planning._outcome import BatchTime, Outcome, Prediction
from systolic.preflight.planning._search import Search
from systolic.preflight.planning._space import cells
from systolic.preflight.planning._terms import Terms

CAPACITY = 100
ERROR = 0.2
SPACE = cells(slices_in("v5litepod-4..v5litepod-16,v6e-4"), ["ddp", "fsdp"], ["none", "full"], 64)


def answer(cell: Cell, chance: random.Random) -> Prediction:
    seconds = chance.uniform(1, 3) * cell.core_batch / cell.slice.chip.peak_flops * 1e12 + chance.uniform(0, 0.1)
    memory = int(10 + chance.uniform(2, 8) * cell.core_batch)
    batch = BatchTime(seconds, chance.uniform(0, 0.02))
    return Prediction(batch, batch, memory, CAPACITY, 1e9, compiled=True, refused=memory > CAPACITY)


class Guesses:
    """A model that is off by up to `ERROR` either way, and knows it; it learns nothing."""

    def __init__(self, truth: dict[Cell, Prediction], chance: random.Random) -> None:
        self.truth = truth
        self.factors = {cell: chance.uniform(1 - ERROR, 1 / (1 - ERROR)) for cell in truth}

    def predict(self, cell: Cell) -> Prediction:
        return self._times(cell, self.factors[cell])

    def optimistic(self, cell: Cell) -> Prediction:
        return replace(self._times(cell, self.factors[cell] * (1 - ERROR)), memory=0)

    def answered(self, cell: Cell, compiled: Prediction) -> None:
        assert compiled == self.truth[cell]

    def _times(self, cell: Cell, factor: float) -> Prediction:
        true = self.truth[cell]
        batch = BatchTime(true.last.computing * factor, true.last.communication * factor)
        return replace(true, middle=batch, last=batch, compiled=False, refused=False)


TERMS = {
    "no terms": Terms(RunLength(None, 1000, None), 64),
    "deadline": Terms(RunLength(None, 1000, None), 64, deadline=200.0),
    "budget": Terms(RunLength(None, 1000, None), 64, budget=0.5),
    "deadline that nothing keeps": Terms(RunLength(None, 1000, None), 64, deadline=0.001),
    "budget that nothing keeps": Terms(RunLength(None, 1000, None), 64, budget=1e-9),
}


@pytest.mark.parametrize("name", TERMS)
@pytest.mark.parametrize("seed", range(8))
def test_the_best_of_all_ways_is_found_without_asking_about_all(name: str, seed: int) -> None:
    chance, terms = random.Random(seed), TERMS[name]
    truth = {cell: answer(cell, chance) for cell in SPACE}
    search = Search(SPACE, Guesses(truth, chance), terms, {})
    search.run(truth.__getitem__, len(SPACE))
    for goal in goals(terms):
        every = [Outcome(cell, found, terms) for cell, found in truth.items() if found.fits]
        assert search.best(goal) == min(every, key=goal.rank)
        # what is left could not be better: refused ways rule out larger ones, and the model the others
        assert not search.rivals(goal)
    assert search.asked < len(SPACE) / 2


def test_it_stops_at_the_number_that_was_given_and_says_what_is_open() -> None:
    chance, terms = random.Random(1), TERMS["no terms"]
    truth = {cell: answer(cell, chance) for cell in SPACE}
    search = Search(SPACE, Guesses(truth, chance), terms, {})
    search.run(truth.__getitem__, 1)
    assert search.asked == len(search.compiled) == 1
    assert any(search.rivals(goal) for goal in goals(terms))


def test_answers_that_are_there_are_not_asked_for_again() -> None:
    chance, terms = random.Random(2), TERMS["deadline"]
    truth = {cell: answer(cell, chance) for cell in SPACE}
    search = Search(SPACE, Guesses(truth, chance), terms, truth)
    search.run(lambda cell: pytest.fail(f"{cell} was compiled"), 100)
    assert search.asked == 0


def test_what_is_refused_rules_out_larger_batches_of_its_kind() -> None:
    terms = TERMS["no terms"]
    space = cells(slices_in("v5litepod-4"), ["ddp"], ["none"], 32)
    found = Prediction(BatchTime(1, 0), BatchTime(1, 0), 2 * CAPACITY, CAPACITY, 1.0, compiled=True, refused=True)
    truth = {cell: found if cell.core_batch >= 2 else replace(found, refused=False) for cell in space}
    model = Guesses(truth, random.Random(0))
    asked: list[tuple[int, int]] = []

    def ask(cell: Cell) -> Prediction:
        asked.append((cell.core_batch, cell.accumulation))
        return truth[cell]

    Search(space, model, terms, {space[1]: truth[space[1]]}).run(ask, 100)
    # 2 x 4 did not fit: nor does 4 x 2, but 8 x 1 keeps no sums of gradients
    assert sorted(asked) == [(1, 8), (8, 1)]


def test_what_is_expected_not_to_fit_is_asked_about_last() -> None:
    terms = TERMS["no terms"]
    space = cells(slices_in("v5litepod-4"), ["ddp"], ["none"], 16)
    truth = {
        cell: Prediction(
            BatchTime(1, 0), BatchTime(0.1 if cell.core_batch == 4 else 1, 0), 120 if cell.core_batch == 4 else 50, CAPACITY, 1.0,
            compiled=True,
        )
        for cell in space
    }  # fmt: skip
    search = Search(space, Guesses(truth, random.Random(0)), terms, {})
    assert search.next(goals(terms)[0]) != space[-1]
    search.run(truth.__getitem__, 100)
    assert space[-1] in search.compiled


def test_terms_that_are_missed_by_less_come_first() -> None:
    terms = TERMS["deadline"]
    cell = SPACE[0]
    quick, slow = (Outcome(cell, Prediction(b, b, 1, 2, 1.0), terms) for b in (BatchTime(0.01, 0), BatchTime(1, 0)))
    times = cell.accumulation * 1000 / 200
    assert missed(quick) == max(0.0, 0.01 * times - 1)
    assert missed(slow) == pytest.approx(times - 1)
