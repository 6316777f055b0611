"""The training loop, in the order in which things happen."""

from __future__ import annotations

import time
import warnings
from typing import Any

from ..data import empty_loader_error, set_epoch
from ..diagnostics import Advisor
from ._anomaly import require_finite
from ._evaluate import EvaluationLoop
from ._feed import FedBatch, feed
from ._hook_changes import call_on_batch
from ._modes import warn_of_eval_mode
from ._padding import padder_for
from ._step_engine import StepEngine, StepOutcome
from ._steps import TrainStep


class FitLoop:
    """Epochs over batches: feed, step, report, validate."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.step = TrainStep(trainer, trainer.lightning_module, trainer._hooks)
        self.engine: StepEngine = trainer._make_engine(self.step, "training")
        self.validation = EvaluationLoop(trainer, "validation")
        self.loaders = trainer._train_loader
        self.advisor = Advisor(self.loaders, self.engine.compiles, trainer._reporting.is_idle, trainer.steps_per_dispatch > 1)
        self._started = time.monotonic()

    def run(self) -> None:
        """Run all epochs."""
        trainer = self.trainer
        if self._done():
            self._warn_if_nothing_is_left()
            return
        self._started = time.monotonic()
        warn_of_eval_mode(trainer.lightning_module)
        trainer._hooks.both("on_train_start")
        while not self._done():
            trainer._hooks_epoch_start()
            trainer._in_epoch = True
            with trainer.profiler.profile("run_training_epoch"):
                self._epoch()
            trainer._in_epoch = False
            trainer._current_epoch += 1
        trainer._hooks.both("on_train_end")

    def _warn_if_nothing_is_left(self) -> None:
        trainer = self.trainer
        counts_on = trainer.current_epoch > 0 and trainer.ckpt_path is None  # a finished run may be resumed again and again
        if counts_on and trainer.num_training_batches and not trainer.should_stop:
            warnings.warn(
                f"fit has nothing to do: epoch {trainer.current_epoch} and step {trainer.global_step} were reached before, and "
                f"max_epochs={trainer.max_epochs}, max_steps={trainer.max_steps}. As in Lightning, a Trainer counts on in "
                "every fit. Raise trainer.fit_loop.max_epochs, or make a new Trainer to begin at epoch 0.",
                stacklevel=2,
            )

    def _done(self) -> bool:
        trainer = self.trainer
        epochs_done = trainer.max_epochs != -1 and trainer.current_epoch >= trainer.max_epochs
        return epochs_done or self._stops() or not trainer.num_training_batches

    def _steps_done(self) -> bool:
        return self.trainer.max_steps != -1 and self.trainer.global_step >= self.trainer.max_steps

    def _epoch(self) -> None:
        """One epoch. From here to the compiled program it is one call: `engine.run`."""
        trainer, hooks, reporting = self.trainer, self.trainer._hooks, self.trainer._reporting
        set_epoch(self.loaders, trainer.current_epoch)
        starts, ends = hooks.anybody("on_train_batch_start"), hooks.anybody("on_train_batch_end")
        batches = feed(
            self.loaders,
            trainer._placement,
            transform=trainer._before_transfer(),
            precision=trainer._precision,
            pad=padder_for(trainer, self.loaders),
            depth=trainer.prefetch_batches,
            limit=trainer.num_training_batches,
            shown=starts or ends,
        )
        batches = trainer._observed(batches, "training")
        if trainer.advice:
            batches = self.advisor.watch(batches)
        scheduled = bool(trainer.lr_scheduler_configs) and trainer.lightning_module.automatic_optimization
        seen = 0
        for batch in batches:
            trainer.is_last_batch = batch.is_last
            if starts and self._batch_start(batch) == -1:
                trainer.is_last_batch = True
                if scheduled:
                    self._schedule(batch.index)
                break
            key, rebuild = self.step.statics.enter(batch.spec, batch.statics)
            numbers = {"batch_idx": batch.index, "epoch": trainer._current_epoch, "global_step": trainer._global_step}
            result = self.engine.run(batch.leaves, (key, *self._phase(batch)), rebuild, numbers)
            seen += 1
            trainer._throttle(result)
            if trainer.detect_anomaly and trainer.lightning_module.automatic_optimization:
                self.engine.verify()
                require_finite(result.value()["finite"], **numbers)
            self._count(result)
            reporting.dispatched(result, trainer._train_results, True)
            if scheduled:
                self._schedule(batch.index)
            if ends:
                hooks.both("on_train_batch_end", self._output(result), batch.host, batch.index)
            hooks.callbacks("on_step_dispatched", batch.index)
            reporting.step(result, self.step.updates)
            if trainer.max_time is not None:
                self._watch_time()
            if trainer.enable_validation and self._validation_is_due(batch.index):
                self._validate()
            if scheduled:
                self._schedule(batch.index, plateau=True)
            if self._stops():
                break
        else:
            if not seen and trainer.current_epoch == 0:
                raise empty_loader_error(self.loaders)
        getattr(batches, "close", lambda: None)()
        self.engine.flush()
        self._epoch_end()

    def _batch_start(self, batch: FedBatch) -> Any:
        trainer = self.trainer
        return call_on_batch(trainer._hooks, "on_train_batch_start", batch, trainer._placement, batch.index)

    def _phase(self, batch: FedBatch) -> Any:
        """Where in the accumulation window the batch is; part of what selects the program."""
        window = self.trainer.accumulate_grad_batches
        self.step.clears = batch.index % window == 0
        self.step.updates = (batch.index + 1) % window == 0 or self.trainer.is_last_batch
        return self.step.clears, self.step.updates

    def _count(self, result: StepOutcome) -> None:
        trainer = self.trainer
        trainer._batches_seen += 1
        if trainer.lightning_module.automatic_optimization:
            trainer._global_step += bool(self.step.updates)
        else:
            trainer._global_step += result.value()["steps"]

    def _output(self, result: StepOutcome) -> Any:
        return result.value()["output"]

    def _schedule(self, batch_idx: int, plateau: bool = False) -> None:
        """Advance the schedulers that are due after a batch.

        Those that watch a metric come after validation; with the interval "epoch", after the epoch's own values.
        """
        trainer = self.trainer
        if self.step.updates or trainer.is_last_batch:
            self._advance("step", batch_idx + 1, plateau)
        if trainer.is_last_batch and not plateau:
            self._advance("epoch", trainer.current_epoch + 1, plateau)

    def _advance(self, interval: str, count: int, plateau: bool) -> None:
        trainer = self.trainer
        for config in trainer.lr_scheduler_configs:
            if config.interval != interval or config.reduce_on_plateau != plateau or count % config.frequency:
                continue
            metric = trainer._monitored(config) if plateau else None
            if not plateau or metric is not None:
                trainer.lightning_module.lr_scheduler_step(config.scheduler, metric)

    def _validation_is_due(self, batch_idx: int) -> bool:
        trainer = self.trainer
        every_epochs = trainer.check_val_every_n_epoch
        if every_epochs is not None and (trainer.current_epoch + 1) % every_epochs:
            return False
        if trainer.is_last_batch and trainer.val_check_batch == float("inf"):
            return True
        if trainer.should_stop and self._may_stop():
            return True
        done = trainer._batches_seen if every_epochs is None else batch_idx + 1
        return done % trainer.val_check_batch == 0

    def _validate(self) -> None:
        self.engine.flush()
        if self.step.updates:
            self.trainer._hooks.module_or_default("on_validation_model_zero_grad")
        self.validation.run()

    def _watch_time(self) -> None:
        trainer = self.trainer
        if time.monotonic() - self._started >= trainer.max_time:
            trainer.should_stop = True

    def _may_stop(self) -> bool:
        trainer = self.trainer
        return trainer.global_step >= (trainer.min_steps or 0) and trainer.current_epoch >= (trainer.min_epochs or 0)

    def _stops(self) -> bool:
        return self._steps_done() or (self.trainer.should_stop and self._may_stop())

    def _epoch_end(self) -> None:
        trainer = self.trainer
        trainer._reporting.epoch_end(trainer._train_results, self._end_epoch_schedulers)

    def _end_epoch_schedulers(self) -> None:
        """Before ModelCheckpoint: a checkpoint of the epoch's end holds the learning rate of the next one."""
        trainer = self.trainer
        if trainer.is_last_batch and trainer.lightning_module.automatic_optimization:
            self._advance("epoch", trainer.current_epoch + 1, plateau=True)
