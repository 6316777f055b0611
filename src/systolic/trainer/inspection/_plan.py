"""Plans for the training that a script is about to begin."""

from __future__ import annotations

import dataclasses
import warnings

from ...callbacks import GradientAccumulationScheduler
from ...exceptions import MisconfigurationException
from ...preflight import Cell, Plan, PlanRequest, RunLength, Slice, TracedStep, make_plan, progress, slice_devices
from ...sharding import StateLayout
from ...strategies import choose_strategy
from .._config import TrainerConfig
from .._defaults import first_of
from .._interception import Intended
from .._length import with_length
from .._state_layout import state_layout
from ._inspection import Subject, trace_step


def plan(intended: Intended, request: PlanRequest) -> Plan:
    """Search for the cheapest and the fastest way to train.

    Args:
        intended: the call of `fit` that a script was about to make.
        request: what is asked for; strategy, remat and accumulation replace those of the script's Trainer.

    Raises:
        MisconfigurationException: the script trains nothing, or chooses the accumulation by a callback; the compiler is not
            installed, or the request is impossible.
    """
    if intended.stage != "fit":
        raise MisconfigurationException(
            f"A plan is about training: the first call of the script has to be trainer.fit. Received: trainer.{intended.stage}."
        )
    config, automatic = intended.trainer.config, intended.model.automatic_optimization
    if first_of(config.callbacks, GradientAccumulationScheduler) is not None:
        raise MisconfigurationException(
            "A plan chooses accumulate_grad_batches, and so does the script's GradientAccumulationScheduler. Run the script "
            "without this callback."
        )
    request = dataclasses.replace(request, accumulates=request.accumulates and automatic)
    subject = Subject.of(intended.trainer, "fit", intended.model, intended.data, intended.datamodule)
    with progress() as tell:
        found = make_plan(request, PlannedSteps(subject), lambda samples: _length(config, request, samples), tell)
    told = [] if automatic else ["manual optimization: no way accumulates"]
    return dataclasses.replace(found, notes=(*found.notes, *told, *_left_out(config, request)))


class PlannedSteps:
    """Steps of a subject with other settings."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def traced(self, cell: Cell, *, updates: bool = True) -> TracedStep:
        """Capture a cell's step."""
        config = dataclasses.replace(
            self._subject.config,
            sharding=choose_strategy(cell.strategy),
            remat=cell.remat,
            accumulate_grad_batches=cell.accumulation,
        )
        subject = dataclasses.replace(self._subject, config=config, updates=updates)
        return trace_step(subject, slice_devices(cell.slice), cell.core_batch)

    def layout(self, strategy: str, slice: Slice) -> StateLayout:
        """The layout of the module's state."""
        config = dataclasses.replace(self._subject.config, sharding=choose_strategy(strategy), devices=slice_devices(slice))
        return state_layout(config, self._subject.model)


def _length(config: TrainerConfig, request: PlanRequest, samples: int | None) -> RunLength:
    """Length of the run: the request's, else the Trainer's."""
    limit = config.limit_train_batches
    if samples is not None and isinstance(limit, float):
        samples = max(1, int(samples * limit))
    batches = limit if isinstance(limit, int) else None
    if request.epochs is not None or request.steps is not None:
        parts = [f"{count} {what}" for count, what in ((request.epochs, "epochs"), (request.steps, "updates")) if count]
        return RunLength(request.epochs, request.steps, samples, batches, ", at most ".join(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 1000 epochs are taken for granted stands in the plan
        epochs = with_length(config).max_epochs
    steps = None if config.max_steps == -1 else config.max_steps
    given = [f"max_epochs={epochs}"] if epochs != -1 else []
    given += [] if steps is None else [f"max_steps={steps}"]
    default = ", the default" if config.max_epochs is None and epochs != -1 else ""
    return RunLength(None if epochs == -1 else epochs, steps, samples, batches, f"{', '.join(given)}{default}")


def _left_out(config: TrainerConfig, request: PlanRequest) -> list[str]:
    """Settings of the script that the plan does not look at."""
    compared = [choose_strategy(name) for name in request.strategies]
    found = []
    if config.sharding is not None and config.sharding not in compared:
        found.append(f"the script's strategy, {config.sharding}, is not among those compared")
    if not isinstance(config.remat, str):
        found.append("the script's remat is a function, which is not among those compared")
    if config.max_time is not None:
        found.append("max_time of the script's Trainer, which may end the run earlier, is not taken into account")
    return found
