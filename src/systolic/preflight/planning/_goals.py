"""Goals of a plan: the cheapest way and the fastest way, within a deadline or a budget."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from ._outcome import Outcome
from ._terms import Terms

Rank = tuple[float, float, float]


@dataclass(frozen=True)
class Goal:
    """Aim of a search.

    Attributes:
        name: "cheapest" or "fastest".
        rank: of an outcome, less is better: first by how much it misses the terms, then by what is looked for.
    """

    name: str
    rank: Callable[[Outcome], Rank]


def goals(terms: Terms) -> tuple[Goal, ...]:
    """Both without terms; under a deadline the cheapest way, under a budget the fastest."""
    cheapest, fastest = Goal("cheapest", _by_cost), Goal("fastest", _by_time)
    if terms.deadline is not None:
        return (cheapest,)
    return (fastest,) if terms.budget is not None else (cheapest, fastest)


def missed(outcome: Outcome) -> float:
    """Share by which a run takes longer than its deadline, or costs more than its budget; 0 where it keeps them."""
    terms, cost = outcome.terms, _cost(outcome)
    late = 0.0 if terms.deadline is None else outcome.seconds / terms.deadline - 1
    over = 0.0 if terms.budget is None else cost / terms.budget - 1
    return max(0.0, late, over)


def _by_cost(outcome: Outcome) -> Rank:
    return missed(outcome), _cost(outcome), outcome.seconds


def _by_time(outcome: Outcome) -> Rank:
    return missed(outcome), outcome.seconds, _cost(outcome)


def _cost(outcome: Outcome) -> float:
    return math.inf if outcome.cost is None else outcome.cost
