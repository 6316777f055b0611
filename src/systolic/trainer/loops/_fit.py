"""The training loop, in the order in which things happen."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from ...callbacks._rewind import Rewind
from ...compiler import place_module
from ...data import EpochSource, empty_loader_error, set_epoch, sharing_of
from ...diagnostics import Advisor
from ...distributed import agree
from ...exceptions import SIGTERMException
from ...runtime import Placement
from ...utilities.random_state import HostRandomState, isolated_random_state
from ...utilities.rank_zero import rank_zero_info
from .._anomaly import require_finite
from .._checkpoints import save_last
from .._common_start import share_generators
from .._counters import catch_up
from .._data_checks import warn_of_few, warn_of_rare_logs
from .._left_batches import as_left
from .._looked_at import belong_together
from .._modes import warn_of_eval_mode
from .._padding import padder_for
from .._plateau import monitored
from .._position import callbacks_before_validation, generators_of_both, generators_of_validation, restore_validation
from .._progress import Reading, Resumed, Stamp, Validation
from .._stage import RunningStage, Stage
from .._step_engine import StepOutcome
from .._steps import TrainStep
from ._due import Due
from ._evaluate import EvaluationLoop
from ._feed import FedBatch, feed
from ._joint import in_step
from ._nothing import is_nothing, pass_over
from ._reading import begin_reading
from ._rewind import go_back
from ._runner import BatchRunner
from ._together import Together

if TYPE_CHECKING:
    from .._run import Run


def begin_fit(run: Run, given: Any) -> None:
    """Begin fit, up to where a checkpoint is restored: optimizers and the first hook.

    As in Lightning loaders are made later, the sanity check's first, unless these hooks ask for something that needs them.

    Args:
        run: a run that is set up.
        given: the training loaders; None for the datamodule's or module's own.
    """
    run.given[Stage.FIT] = given
    run.note_validation()
    if run.train_loader is not None:  # a setup hook has asked for it, by `trainer.fit_loop.setup_data()`
        run.set_validation_interval()
    run.loads_when_asked = True
    run.configure_optimizers()
    run.hooks.both("on_fit_start")
    run.module.zero_grad()  # gradients from before are nobody's, unless a checkpoint brings some


class FitLoop:
    """Epochs over batches: feed, step, report, validate."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.step = TrainStep(run, Stage.FIT, run.train_results)
        self.runner = BatchRunner(run, self.step, Stage.FIT)
        self.engine = self.runner.engine
        self.validation = EvaluationLoop(run, Stage.VALIDATE)
        self.batches: Iterator[FedBatch] = iter(())
        self.due = Due(run)
        self.together = Together(run)
        self._goes_on = False

    def load(self) -> None:
        """Get the training loaders, which are made now where no hook has asked for them."""
        run = self._run
        run.load_when_asked()
        self._read_from(run.train_loader)
        grouped = run.config.steps_per_dispatch > 1
        self.advisor = Advisor(self.loaders, run.reporting.is_idle, grouped) if run.config.advice else None

    def _read_from(self, loaders: Any) -> None:
        source = EpochSource(loaders)
        self.loaders = loaders
        self.reading = self._run.progress.reading = Reading(source, draws=True if source.draws_later else None)

    def sanity_check(self) -> None:
        """Run a few batches of validation, so that a mistake there is found before an epoch is trained.

        A run that goes on from a checkpoint does without: it has validated before.
        """
        run = self._run
        resumes = run.progress.resumed is not None
        if resumes or not run.enable_validation or not run.config.num_sanity_val_steps:
            return
        run.state.stage = RunningStage.SANITY_CHECKING
        on_devices = None if run.placement is None else run.placement.random_state()
        with isolated_random_state():
            run.hooks.callbacks("on_sanity_check_start")
            self.validation.run()
            self.due.sanity_checked()
            run.hooks.callbacks("on_sanity_check_end")
        if run.placement is not None and on_devices is not None:
            run.placement.restore_random_state(on_devices)
        run.reporting.forget()
        run.state.stage = RunningStage.TRAINING

    def start(self) -> None:
        """Call the hooks before the first epoch."""
        run = self._run
        if run.placement is not None and run.placement_type is Placement:
            place_module(run.module, run.placement)
        run.hooks.both("on_train_start")

    def start_epoch(self) -> None:
        """Call the hooks before an epoch's first batch."""
        self._run.hooks.both("on_train_epoch_start")

    def run(self) -> None:
        """Run all epochs."""
        run = self._run
        self.load()
        if self._done():
            self._warn_if_nothing_is_left()
            return
        if run.config.max_steps == -1:
            catch_up(run)
        self.due.start()
        if run.progress.resumed is None:
            run.progress.loaded = run.counters.epoch
            self._begin_loaded()
        else:
            self._load_as_before()
        warn_of_eval_mode(run.module)
        warn_of_rare_logs(run)
        self.start()
        try:
            self._epochs()
        except SIGTERMException:
            save_last(run)
            raise
        finally:
            self.reading.source.close()
        run.hooks.both("on_train_end")

    def _epochs(self) -> None:
        run = self._run
        while not self._done():
            resumed = self._take_up()
            if not run.counters.in_epoch:
                run.progress.begin_epoch()
                run.counters.forget_epoch()
                if self.due.new_training_data():
                    run.reload(Stage.FIT)
                    self.reading.source.close()
                    self._read_from(run.train_loader)
                    self._begin_loaded()
                self.start_epoch()
                run.is_last_batch = False  # the last epoch's was
            # not before: a checkpoint from a hook above is of the time between epochs; resuming it calls these hooks again
            run.counters.in_epoch = True
            try:
                with run.profiler.profile("run_training_epoch"):
                    self._epoch(resumed)
            except Rewind as rewind:
                self._go_back(rewind.with_traceback(None))  # its frames hold results of the step
                continue
            run.counters.in_epoch = False
            run.counters.epoch += 1

    def _go_back(self, rewind: Rewind) -> None:
        """Take a checkpoint up in the middle of the run, whose programs, optimizers and loaders stay."""
        run = self._run
        self._end_reading()
        self.reading.source.close()
        go_back(run, rewind)
        self._load_as_before()

    def _load_as_before(self) -> None:
        """Ask for loaders that are made anew every few epochs, as of the epoch that those before the checkpoint were of."""
        run, epoch = self._run, self._run.counters.epoch
        if run.config.reload_dataloaders_every_n_epochs:
            run.counters.epoch = run.progress.loaded
            run.reload(Stage.FIT)
            if run.enable_validation and run.progress.validation_loaded is not None:
                run.counters.epoch = run.progress.validation_loaded
                run.reload(Stage.VALIDATE)
                run.loaders_and_limits(Stage.VALIDATE)
            run.counters.epoch = epoch
        self._read_from(run.train_loader)

    def _begin_loaded(self) -> None:
        """Draw the numbers that Lightning draws for loaders which it has just got; in the first epoch these are the epoch's."""
        if self._run.counters.epoch:
            self.reading.source.load(self._run.num_training_batches < float("inf"))

    def _take_up(self) -> Resumed | None:
        """Go on from the checkpoint, the first time: generators last, after every hook that may have drawn from them."""
        run, progress = self._run, self._run.progress
        resumed, progress.resumed = progress.resumed, None
        if resumed is None:
            return None
        restore_validation(run, resumed.validation)
        if resumed.before is None:
            return resumed
        if run.counters.in_epoch:
            self.reading.source.expect(resumed.place)  # for checkpoints before it is read from
            progress.trained = Stamp(None, next_before=resumed.before) if resumed.after is not None else None
        elif resumed.place is not None:
            self.reading.source.resume(resumed.place, 0, False, resumed.before)
        (resumed.after or resumed.before).restore()
        return resumed if run.counters.in_epoch else None

    def _warn_if_nothing_is_left(self) -> None:
        run, config, counters = self._run, self._run.config, self._run.counters
        # a finished run may be resumed again and again
        counts_on = counters.epoch > 0 and run.call is not None and run.call.ckpt_path is None
        if counts_on and run.num_training_batches and not run.should_stop:
            warnings.warn(
                f"fit has nothing to do: epoch {counters.epoch} and step {counters.global_step} were reached before, and "
                f"max_epochs={config.max_epochs}, max_steps={config.max_steps}. As in Lightning, a Trainer counts on in "
                "every fit. Raise trainer.fit_loop.max_epochs, or make a new Trainer to begin at epoch 0.",
                stacklevel=2,
            )

    def _done(self) -> bool:
        run = self._run
        self._agree_to_stop()
        epochs_done = run.counters.epochs_processed >= run.config.last_epoch
        if epochs_done:
            catch_up(run)
        return epochs_done or self._stops() or not run.num_training_batches

    def _epoch(self, resumed: Resumed | None) -> None:
        """One epoch. From here to the compiled program it is one call: `engine.run`."""
        run = self._run
        hooks, reporting, module, counters, progress = run.hooks, run.reporting, run.module, run.counters, run.progress
        engine, arguments, starves = self.engine, self.runner.arguments, self.runner.starves
        starts, ends = hooks.anybody("on_train_batch_start"), hooks.anybody("on_train_batch_end")
        scheduled = bool(run.schedulers) and module.automatic_optimization
        seen = progress.batch
        self.runner.begins()
        self.batches = self._batches(starts or ends, resumed)
        for batch in self.batches:
            run.is_last_batch, run.sharing = batch.is_last, batch.sharing
            progress.take(batch.stamp)
            if progress.left_out and (counters.epoch, batch.index) in progress.left_out:
                seen += 1
                if self._leave_out(batch):
                    break
                continue
            if not batch.leaves and is_nothing(batch):
                seen += 1
                if self._go_past(batch, scheduled):
                    break
                continue
            if starts and self.runner.start(batch) == -1:
                run.is_last_batch = True
                if scheduled:
                    self._schedule(batch.index)
                break
            result = engine.run(*arguments(batch, *self._phase(batch)))
            seen += 1
            if run.is_shared:
                self.together.dispatched()
            if starves:
                self.runner.pace(result)
            if run.config.detect_anomaly and module.automatic_optimization:
                self.engine.verify()
                require_finite(result.value()["finite"], batch.index, counters.epoch, counters.global_step)
            self._count(result, batch)
            reporting.dispatched(result, run.train_results, True)
            if scheduled:
                self._schedule(batch.index)
            if ends:
                done = result.value()
                hooks.both("on_train_batch_end", done["output"], as_left(batch.host, done), batch.index)
            reporting.step(result, self.step.updates)
            hooks.callbacks("on_step_dispatched", batch.index)
            if run.signals.pending is not None:
                run.signals.check_alone()
            if self._ends_after(batch.index):
                break
        else:
            if not seen and counters.epoch == 0:
                raise empty_loader_error(self.loaders)
            warn_of_few(run.num_training_batches, seen, counters.epoch)
        self._end_reading()
        self.engine.flush()
        reporting.epoch_end(run.train_results, self._end_epoch_schedulers)

    def _end_reading(self) -> None:
        """Nothing more is read ahead for this epoch."""
        if isinstance(self.batches, Generator):
            self.batches.close()

    def _leave_out(self, batch: FedBatch) -> bool:
        """Go past a batch as if the loader did not give it; what is due at its place comes. Whether the epoch ends early."""
        run, counters = self._run, self._run.counters
        counters.batches_seen += 1
        run.progress.leave_out(batch.index, batch.stamp)
        run.reporting.arrived((counters.epoch, batch.index))
        if batch.is_last and run.module.automatic_optimization:
            self._advance("epoch", counters.epoch + 1, plateau=False)
        return self._ends_after(batch.index, trained=False)

    def _go_past(self, batch: FedBatch, scheduled: bool) -> bool:
        """Conclude a batch that is None. Whether the epoch ends early."""
        run = self._run
        self._phase(batch)
        pass_over(run, batch, bool(self.step.updates))
        if scheduled:
            self._schedule(batch.index)
        run.hooks.both("on_train_batch_end", None, None, batch.index)
        run.hooks.callbacks("on_step_dispatched", batch.index)
        return self._ends_after(batch.index)

    def _ends_after(self, index: int, trained: bool = True) -> bool:
        """Conclude a batch: the clock, validation, schedulers that read a metric. Whether the epoch ends early."""
        run = self._run
        if run.is_shared:
            self._agree_after_batch()
        if run.enable_validation and not run.progress.validated and self._validation_is_due(index):
            self._validate()
        run.progress.validated = True
        if run.config.checkpoint_io.writes_later:
            run.config.checkpoint_io.check()
        if trained and run.schedulers and run.module.automatic_optimization:
            self._schedule(index, plateau=True)
        run.progress.finished = True
        return self._stops()

    def _batches(self, shown: bool, resumed: Resumed | None) -> Iterator[FedBatch]:
        """The epoch's batches, on the devices; after a resume those that are left of it."""
        run, config, counters = self._run, self._run.config, self._run.counters
        if resumed is not None and self._ends_at_once():
            self.reading.source.resume(resumed.place, 0, False, None, generators_of_both(run))
            return iter(())
        set_epoch(self.loaders, counters.epochs_processed)
        share_generators()
        depends = run.placement is not None and belong_together(self.loaders, run)
        begin_reading(self.reading, run.progress.batch, resumed, generators_of_both(run), depends)
        batches = feed(
            self.reading.source.begin(),
            run.placement,
            transform=run.before_transfer(),
            precision=config.numerics,
            pad=padder_for(run, self.loaders),
            depth=config.prefetch_batches,
            limit=run.num_training_batches,
            shown=shown,
            reading=self.reading,
            sharing=sharing_of(self.loaders),
        )
        return in_step(self.runner.watched(batches, self.advisor), run, self.loaders)

    def _ends_at_once(self) -> bool:
        """Do what was left to do after the last batch before the checkpoint; whether none follows in this epoch."""
        run, progress = self._run, self._run.progress
        self.step.updates = progress.updates
        ends = bool(progress.batch) and not progress.finished and self._ends_after(progress.batch - 1)
        return ends or (run.is_last_batch and progress.batch > 0)

    def _phase(self, batch: FedBatch) -> tuple[bool, bool, bool, int, float | None]:
        """Place of the batch in the accumulation window, and settings that callbacks may change: what selects the program."""
        run, step = self._run, self.step
        window = run.config.accumulate_grad_batches
        step.learns = not run.skips_backward
        if step.learns:
            place, ends = (batch.index, run.is_last_batch) if not run.progress.left_out else self._place(batch)
            step.clears = place % window == 0
            step.updates = (place + 1) % window == 0 or ends
        else:  # without gradients; as in Lightning the whole epoch counts as one step
            step.clears, step.updates = False, run.is_last_batch
        return step.learns, step.clears, step.learns and step.updates, window, run.config.gradient_clip_val

    def _place(self, batch: FedBatch) -> tuple[int, bool]:
        """The number of a batch among those of the epoch that are not left out, and whether it is the last of these."""
        run, epoch, end = self._run, self._run.counters.epoch, self._run.num_training_batches
        place, no_more = run.progress.place_of(epoch, batch.index, end)
        if no_more and (place + 1) % run.config.accumulate_grad_batches:
            run.reporting.arrived((epoch, end))  # it ends a window that it did not end before
        return place, no_more or run.is_last_batch

    def _count(self, result: StepOutcome, batch: FedBatch) -> None:
        run, counters = self._run, self._run.counters
        counters.batches_seen += 1
        if run.module.automatic_optimization:
            counters.global_step += bool(self.step.updates)
        else:
            counters.global_step += result.value()["steps"]
        run.progress.count(batch.index, bool(self.step.updates), batch.stamp)

    def _schedule(self, batch_idx: int, plateau: bool = False) -> None:
        """Advance the schedulers that are due after a batch.

        Those that watch a metric come after validation; with the interval "epoch", after the epoch's own values.
        """
        run = self._run
        if self.step.updates or run.is_last_batch:
            self._advance("step", batch_idx + 1, plateau)
        if run.is_last_batch and not plateau:
            self._advance("epoch", run.counters.epoch + 1, plateau)

    def _advance(self, interval: str, count: int, plateau: bool) -> None:
        run = self._run
        for config in run.schedulers:
            if config.interval != interval or config.reduce_on_plateau != plateau or count % config.frequency:
                continue
            metric = monitored(run, config) if plateau else None
            if not plateau or metric is not None:
                run.module.lr_scheduler_step(config.scheduler, metric)
                run.counters.scheduler_steps += 1
                run.progress.scheduler_steps += 1

    def _validation_is_due(self, batch_idx: int) -> bool:
        run = self._run
        return self.due.validation(batch_idx, stopping=run.should_stop and self._may_stop())

    def _validate(self) -> None:
        run = self._run
        # validation is another engine on the same state: it would see parameters from before the steps that wait
        self.engine.flush()
        if self.step.updates:
            run.hooks.module_or_default("on_validation_model_zero_grad")
        if self.due.new_validation_data():
            run.reload(Stage.VALIDATE)
        loaders = generators_of_validation(run)
        states = callbacks_before_validation(run)
        run.progress.validation = Validation(self.validation.results, HostRandomState.current(), loaders, states)
        self.validation.run()
        run.progress.validation = None
        self.due.validated()
        self._agree_to_stop()

    def _agree_to_stop(self) -> None:
        """Agree to stop: all do after the same batch what one process decides by its clock, or a value that it alone has."""
        if self._run.is_shared:
            self._run.should_stop = agree(self._run.should_stop)

    def _agree_after_batch(self) -> None:
        """One question a batch, whether any process has a reason to end; which one it is they ask when there is one."""
        run = self._run
        if self.together.after_batch(run.should_stop or run.signals.pending is not None):
            run.signals.check_together()
            self._agree_to_stop()

    def _may_stop(self) -> bool:
        return self._run.counters.may_stop(self._run.config.min_steps, self._run.config.min_epochs)

    def _stops_early(self) -> bool:
        """Whether somebody wants to stop, and may; who has to wait is told so, once."""
        run = self._run
        if not run.should_stop or self._may_stop():
            return run.should_stop
        if not self._goes_on:
            self._goes_on = True
            rank_zero_info(
                f"Trainer was asked to stop, but the required `min_epochs={run.config.min_epochs!r}` or "
                f"`min_steps={run.config.min_steps!r}` has not been met. Training will continue..."
            )
        return False

    def _stops(self) -> bool:
        run = self._run
        max_steps = run.config.max_steps
        steps_done = max_steps != -1 and run.counters.global_step >= max_steps
        return steps_done or self._stops_early()

    def _end_epoch_schedulers(self) -> None:
        """Before ModelCheckpoint: a checkpoint of the epoch's end holds the learning rate of the next one."""
        run = self._run
        if run.is_last_batch and run.module.automatic_optimization:
            self._advance("epoch", run.counters.epoch + 1, plateau=True)
