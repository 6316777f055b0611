"""From what a user asks to a plan: calibrate, search, compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...exceptions import MisconfigurationException
from .._slices import Slice
from ._answers import ask_compiler
from ._calibration import Calibrator
from ._facts import Steps
from ._found import Choice
from ._goals import Goal, goals
from ._outcome import Outcome, Prediction
from ._plan import Plan
from ._search import Search
from ._space import Cell, cells
from ._terms import RunLength, Terms


@dataclass(frozen=True)
class PlanRequest:
    """Request for a plan.

    Attributes:
        slices: where it might run.
        global_batch: samples for an update of the parameters.
        strategies: names that the Trainer takes.
        remats: names that the Trainer takes.
        deadline: seconds, or None.
        budget: USD, or None.
        epochs: in place of the Trainer's.
        steps: updates, in place of the Trainer's.
        prices: USD per chip and hour in place of the table's; see `Terms`.
        most: how many ways the search compiles.
        accumulates: whether several batches may make an update.
    """

    slices: tuple[Slice, ...]
    global_batch: int
    strategies: tuple[str, ...] = ("ddp", "fsdp")
    remats: tuple[str, ...] = ("none", "dots", "full")
    deadline: float | None = None
    budget: float | None = None
    epochs: int | None = None
    steps: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    most: int = 6
    accumulates: bool = True


def make_plan(
    request: PlanRequest, steps: Steps, length: Callable[[int | None], RunLength], tell: Callable[[str], None]
) -> Plan:
    """Search the ways to run a training.

    Args:
        request: what is asked for.
        steps: where the steps come from.
        length: of the run, from the number of samples in an epoch of the loader, where it is known.
        tell: gets a line whenever something begins.

    Raises:
        MisconfigurationException: the global batch divides over none of the slices, the length of the run is not known, a
            budget is given and no price is known, or none of the ways is possible.
    """
    space = cells(request.slices, request.strategies, request.remats, request.global_batch)
    space = [cell for cell in space if request.accumulates or cell.accumulation == 1]
    calibrator = Calibrator(space, steps, tell)
    terms = Terms(
        length(calibrator.step.samples_per_epoch), request.global_batch, request.deadline, request.budget, request.prices
    )
    terms.length.updates(request.global_batch, 1)  # for its error, before anything is compiled
    _require_prices(terms, request.slices)
    count, model = len(calibrator.possible), calibrator.model()
    possible = calibrator.possible
    hopeful = [cell for cell in possible if model.optimistic(cell).fits]
    search = Search(hopeful, model, terms, calibrator.answers)

    def ask(cell: Cell) -> Prediction:
        tell(f"compiling {search.asked + 1} of at most {request.most}: {cell}")
        return ask_compiler(cell, steps)

    search.run(ask, request.most)
    first = goals(terms)[0]
    return Plan(
        model=calibrator.step.model,
        precision=calibrator.step.precision,
        terms=terms,
        choices=tuple(_choices(search, terms)),
        compiled=tuple(_ranked(search.outcomes(), first)),
        modelled=tuple(_of_other_slices(search, first)),
        closest=_closest(search, [Outcome(cell, model.predict(cell), terms) for cell in possible], calibrator.answers, terms),
        space=len(space),
        hopeless=count - len(hopeful),
        programs=(len(calibrator.answers), search.asked),
        errors=(min(model.errors), max(model.errors)) if model.errors else None,
        notes=(*dict.fromkeys([*calibrator.step.notes, *calibrator.notes, *search.notes]), *_unpriced(terms, request.slices)),
    )


def _require_prices(terms: Terms, slices: tuple[Slice, ...]) -> None:
    if terms.budget is not None and all(terms.price(slice) is None for slice in slices):
        raise MisconfigurationException(
            f"--budget needs prices, and none is known for {', '.join(slice.name for slice in slices)}. Give them: --price "
            "v3=1.10 (USD per chip and hour)."
        )


def _unpriced(terms: Terms, slices: tuple[Slice, ...]) -> list[str]:
    names = dict.fromkeys(slice.chip.cloud_name for slice in slices if terms.price(slice) is None)
    return [f"no price is known for {', '.join(names)}: --price gives one, USD per chip and hour"] if names else []


def _choices(search: Search, terms: Terms) -> list[Choice]:
    found = [(goal, search.best(goal)) for goal in goals(terms)]
    return [Choice(goal.name, best, len(search.rivals(goal))) for goal, best in found if best is not None]


def _ranked(outcomes: list[Outcome], goal: Goal) -> list[Outcome]:
    """Best first; what does not fit last."""
    return sorted(outcomes, key=lambda one: (not one.prediction.fits, not one.prediction.refused and goal.rank(one)))


def _of_other_slices(search: Search, goal: Goal) -> list[Outcome]:
    """The model's best way for each slice of which nothing was compiled that fits."""
    seen = {one.cell.slice for one in search.outcomes() if one.prediction.fits}
    found: dict[Slice, Outcome] = {}
    for one in sorted((one for one in search.modelled() if one.prediction.fits), key=goal.rank):
        if one.cell.slice not in seen:
            found.setdefault(one.cell.slice, one)
    return list(found.values())


def _closest(search: Search, every: list[Outcome], answers: Mapping[Cell, Prediction], terms: Terms) -> Outcome | None:
    """The way that lacks least memory, where nothing was compiled that fits."""
    known = [*search.outcomes(), *(Outcome(cell, answer, terms) for cell, answer in answers.items())]
    if any(one.prediction.fits for one in search.outcomes()):
        return None
    refused = [one for one in known if one.prediction.refused]
    return min(refused or every, key=lambda one: one.percent, default=None)
