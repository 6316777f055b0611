"""The plan against compiling every way of a small grid."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest
import torch
from preflight.planning.planned import Wide, loader, steps_of
from torch import nn
from trainer.runs import trainer

from systolic.preflight import Plan, PlanRequest, RunLength, make_plan, slices_in
from systolic.preflight.planning._answers import ask_compiler
from systolic.preflight.planning._goals import goals
from systolic.preflight.planning._outcome import Outcome
from systolic.preflight.planning._space import cells

pytest.importorskip("libtpu")

# 65,537 is a prime number: the batch divides in a few ways only. On one core the largest does not fit, and neither one sample
# nor all of them is best.
REQUEST = PlanRequest(tuple(slices_in("v5litepod-1,v5litepod-4")), 4 * 65_537, remats=("none",), most=6)
LENGTH = RunLength(None, 100, None, source="100 updates")


@functools.cache
def every() -> list[Outcome]:
    """All ways, compiled."""
    steps = steps_of(Wide())
    space = cells(REQUEST.slices, REQUEST.strategies, REQUEST.remats, REQUEST.global_batch)
    terms = planned(REQUEST).terms
    return [Outcome(cell, ask_compiler(cell, steps), terms) for cell in space]


def planned(request: PlanRequest) -> Plan:
    return make_plan(request, steps_of(Wide()), lambda samples: LENGTH, lambda text: None)


def best(request: PlanRequest) -> dict[str, Outcome]:
    terms = planned(request).terms
    fitting = [replace(one, terms=terms) for one in every() if one.prediction.fits]
    return {goal.name: min(fitting, key=goal.rank) for goal in goals(terms)}


@pytest.mark.slow
def test_the_plan_finds_the_cheapest_and_the_fastest_of_all_ways() -> None:
    plan, true = planned(REQUEST), best(REQUEST)
    assert {one.goal: one.outcome for one in plan.choices} == true
    assert all(one.outcome.prediction.compiled for one in plan.choices)
    assert plan.succeeds
    assert plan.programs[1] <= REQUEST.most < len(every())
    # the grid is one in which the choice matters
    refused = [one for one in every() if one.prediction.refused]
    fitting = sorted(one.cost for one in every() if one.prediction.fits)
    assert refused
    assert fitting[-1] > 100 * fitting[0]
    assert true["cheapest"].cell.slice != true["fastest"].cell.slice


@pytest.mark.tables
def test_its_figures_are_those_of_preflight() -> None:
    for choice in planned(REQUEST).choices:
        cell = choice.outcome.cell
        options = {"strategy": cell.strategy, "accumulate_grad_batches": cell.accumulation}
        report = trainer(**options).preflight(Wide(), loader(), slice=cell.slice.name, batch_size=cell.core_batch)
        assert report.time is not None
        assert choice.outcome.prediction.last.seconds == report.time.step
        assert choice.outcome.prediction.memory >= report.memory.total
        if cell.accumulation == 1:
            assert choice.outcome.utilization == pytest.approx(report.time.utilization)


@pytest.mark.slow
def test_under_a_deadline_and_a_budget_it_finds_the_best_that_keeps_them() -> None:
    free = best(REQUEST)
    between = (free["cheapest"].seconds + free["fastest"].seconds) / 2
    assert free["cheapest"].cost is not None
    late, early = replace(REQUEST, deadline=1.01 * free["cheapest"].seconds), replace(REQUEST, deadline=between)
    for request, name in (
        (late, "cheapest"),
        (early, "cheapest"),
        (replace(REQUEST, budget=1.001 * free["cheapest"].cost), "fastest"),
    ):
        [choice] = planned(request).choices
        assert (choice.goal, choice.outcome) == (name, best(request)[name])
        assert choice.keeps_terms
    assert best(late)["cheapest"].cell == free["cheapest"].cell != best(early)["cheapest"].cell
    # what nobody keeps: the fastest comes closest
    [choice] = planned(replace(REQUEST, deadline=free["fastest"].seconds / 2)).choices
    assert choice.outcome.cell == free["fastest"].cell
    assert not choice.keeps_terms


@pytest.mark.tables
def test_where_nothing_fits_it_says_what_comes_closest() -> None:
    class Huge(Wide):
        """Parameters and moments of 24 GiB, of which only the shapes are there."""

        def __init__(self) -> None:
            super().__init__(hidden=16)

        def configure_model(self) -> None:
            with torch.device("meta"):
                self.net = nn.Sequential(nn.Linear(128, 2**23), nn.ReLU(), nn.Linear(2**23, 128))

    request = replace(REQUEST, slices=tuple(slices_in("v5litepod-1")), global_batch=4)
    plan = make_plan(request, steps_of(Huge()), lambda samples: LENGTH, lambda text: None)
    assert not plan.choices
    assert not plan.succeeds
    assert plan.closest is not None
    assert plan.closest.prediction.memory > plan.closest.prediction.capacity
