"""Work that every loop does with a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...data import whole_spec
from ...diagnostics import Advisor
from ...profilers import THROTTLE
from .._batch_iterator import asks_for_iterator
from .._engines import make_engine
from .._hook_changes import call_on_batch
from .._observed import observed_batches
from .._stage import Stage
from .._step_engine import StepOutcome
from .._steps import Step
from ._feed import FedBatch

if TYPE_CHECKING:
    from .._run import Run

_RECORDED = {Stage.FIT: "training", Stage.VALIDATE: "validation", Stage.TEST: "test", Stage.PREDICT: "predict"}
"""What reports call the steps of a stage."""

Arguments = tuple[list[Any], tuple[Any, ...], Callable[[list[Any]], tuple[Any, ...]], dict[str, Any]]


class BatchRunner:
    """Runs one stage's step: `runner.engine.run(*runner.arguments(batch))`.

    The engine is called by the loop itself, so that no frame stands between them.

    Args:
        run: the run.
        step: the step function.
        stage: whose step it is.

    Attributes:
        engine: what runs the step.
        starves: whether devices are simulated cores, whose thread pool starves when many steps wait for it.
    """

    def __init__(self, run: Run, step: Step, stage: Stage) -> None:
        self.run = run
        self.step = step
        self.stage = stage
        self.engine = make_engine(run, step, stage, step.results)
        step_of_user = getattr(run.module, stage.step)  # None where a script says that it has none
        self._reads_itself = step_of_user is not None and asks_for_iterator(step_of_user)
        self._before: tuple[Any, ...] | None = None
        placement = run.placement
        self.starves = placement is not None and placement.platform == "cpu" and len(run.config.devices) > 1

    def watched(self, batches: Iterator[FedBatch], advisor: Advisor | None = None) -> Iterator[FedBatch]:
        """The batches of a loader, of which a profiler and the run's record are told, and whose wait a signal ends.

        Args:
            batches: what `feed` gives.
            advisor: is told how long steps took.
        """
        profiler = self.run.config.profiler
        if profiler is not None:
            profiler.expect_steps(self.stage.step, self._expected())
        waited = self.run.signals.interruptible(observed_batches(batches, profiler, self.stage))
        return self.run.record.watched(_RECORDED[self.stage], waited, self.engine.compiles, advisor)

    def begins(self) -> None:
        """An epoch or an evaluation begins, before which there was no batch."""
        self._before = None

    def start(self, batch: FedBatch, *place: int) -> Any:
        """Call the hook before a batch's step.

        A step that asks for `dataloader_iter` has not read its batch by then: as in Lightning the hook gets the one before.

        Args:
            batch: the batch.
            place: the number of its loader, where there are several.

        Returns:
            What the module's hook returned.
        """
        run, name = self.run, self.stage.batch_start
        if not self._reads_itself:
            return call_on_batch(run.hooks, name, batch, run.placement, batch.index, *place)
        before, self._before = self._before, (batch.host, batch.index, *place)
        return run.hooks.both(name, *(before or (None, 0, *(0 for _ in place))))

    def _expected(self) -> int | float:
        """How many batches an epoch of the stage has; a fit's validation with those of the sanity check, as in Lightning."""
        run = self.run
        if self.stage is Stage.FIT:
            return run.num_training_batches
        before_training = run.sanity_limits() if run.state.fn == "fit" else []
        return sum(run.loaders_and_limits(self.stage)[1]) + sum(before_training)

    def arguments(self, batch: FedBatch, *place: Any) -> Arguments:
        """The engine's arguments for a batch.

        Args:
            batch: the batch.
            place: what besides the batch's structure selects the program.
        """
        counters = self.run.counters
        spec, statics = batch.spec, batch.statics
        if statics and batch.sharing is not None:
            spec = whole_spec(spec, batch.own_rows)
            statics = spec.statics
        key, rebuild = self.step.statics.enter(spec, statics)
        numbers = {"batch_idx": batch.index, "epoch": counters.epoch, "global_step": counters.global_step}
        return batch.leaves, (key, *place, *self.run.reads.answers), rebuild, numbers

    def pace(self, result: StepOutcome) -> None:
        """Wait for the step before the last one; to be called after each step where `starves` says so."""
        # to wait for a step that waits for others would dispatch it alone: no group would ever be full
        if not result.is_dispatched:
            return
        in_flight = self.run.in_flight
        in_flight.append(result)
        if len(in_flight) > 1:
            earlier = in_flight.popleft()
            alive = [array for array in earlier.arrays if not array.is_deleted()]  # others went into a later step
            with self.run.profiler.profile(THROTTLE):
                for array in alive:
                    array.block_until_ready()  # host sync: simulated cores share one pool of threads
                if not alive:
                    result.wait()  # host sync: the same
