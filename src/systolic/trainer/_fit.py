"""The training loop, in the order in which things happen."""

from __future__ import annotations

import time
import warnings
from typing import Any

from ..data import empty_loader_error, set_epoch
from ._evaluate import EvaluationLoop
from ._feed import FedBatch, feed
from ._steps import TrainStep


class FitLoop:
    """Epochs over batches: feed, step, report, validate."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.step = TrainStep(trainer, trainer.lightning_module, trainer._hooks)
        self.engine = trainer._make_engine(self.step)
        self.validation = EvaluationLoop(trainer, "validation")
        self.loaders = trainer._train_loader
        self.batches_seen = 0
        self._started = time.monotonic()

    def run(self) -> None:
        """Run all epochs."""
        trainer = self.trainer
        trainer._hooks.both("on_train_start")
        while not self._done():
            trainer._hooks_epoch_start()
            self._epoch()
            trainer._current_epoch += 1
        trainer._hooks.both("on_train_end")

    def _done(self) -> bool:
        trainer = self.trainer
        epochs_done = trainer.max_epochs != -1 and trainer.current_epoch >= trainer.max_epochs
        stop_allowed = trainer.current_epoch >= (trainer.min_epochs or 0) and trainer.global_step >= (
            trainer.min_steps or 0
        )
        if trainer.should_stop and not stop_allowed:
            trainer.should_stop = False
        return (
            epochs_done
            or self._steps_done()
            or (trainer.should_stop and stop_allowed)
            or not trainer.num_training_batches
        )

    def _steps_done(self) -> bool:
        return self.trainer.max_steps != -1 and self.trainer.global_step >= self.trainer.max_steps

    def _epoch(self) -> None:
        """One epoch. From here to the compiled program it is one call: `engine.run`."""
        trainer, hooks, reporting = self.trainer, self.trainer._hooks, self.trainer._reporting
        set_epoch(self.loaders, trainer.current_epoch)
        batches = feed(
            self.loaders,
            trainer._placement,
            transform=trainer._before_transfer(),
            depth=trainer.prefetch_batches,
            limit=trainer.num_training_batches,
        )
        starts, ends = hooks.anybody("on_train_batch_start"), hooks.anybody("on_train_batch_end")
        seen = 0
        for batch in batches:
            trainer._batch_idx = batch.index
            trainer.is_last_batch = batch.index + 1 == trainer.num_training_batches
            if starts and self._batch_start(batch) == -1:
                break
            key = self._phase(batch)
            numbers = {"batch_idx": batch.index, "epoch": trainer._current_epoch, "global_step": trainer._global_step}
            result = self.engine.run(batch.leaves, key, batch.rebuild, numbers)
            seen += 1
            trainer._throttle(result)
            self._count(result)
            self._schedule("step")
            if ends:
                hooks.both("on_train_batch_end", self._output(result), batch.host, batch.index)
            reporting.step(result, batch.index)
            if self._validation_is_due(batch.index):
                self.validation.run()
            if self._stops():
                break
        else:
            if not seen and trainer.current_epoch == 0:
                raise empty_loader_error(self.loaders)
        getattr(batches, "close", lambda: None)()
        self._epoch_end()

    def _batch_start(self, batch: FedBatch) -> Any:
        return self.trainer._hooks.both("on_train_batch_start", batch.host, batch.index)

    def _phase(self, batch: FedBatch) -> Any:
        """Where in the accumulation window the batch is; part of what selects the program."""
        window = self.trainer.accumulate_grad_batches
        self.step.clears = batch.index % window == 0
        self.step.updates = (batch.index + 1) % window == 0 or self.trainer.is_last_batch
        return (batch.spec, self.step.clears, self.step.updates)

    def _count(self, result: Any) -> None:
        trainer = self.trainer
        self.batches_seen += 1
        if trainer.lightning_module.automatic_optimization:
            trainer._global_step += bool(self.step.updates)
        else:
            trainer._global_step += result.value()["steps"]

    def _output(self, result: Any) -> Any:
        return result.value()["output"]

    def _schedule(self, interval: str) -> None:
        """Advance the schedulers of this interval."""
        trainer = self.trainer
        if not trainer.lightning_module.automatic_optimization or (interval == "step" and not self.step.updates):
            return
        count = trainer.global_step if interval == "step" else trainer.current_epoch + 1
        for config in trainer.lr_scheduler_configs:
            if config.interval == interval and count % config.frequency == 0:
                metric = trainer._monitored(config) if config.reduce_on_plateau else None
                if not config.reduce_on_plateau or metric is not None:
                    trainer.lightning_module.lr_scheduler_step(config.scheduler, metric)

    def _validation_is_due(self, batch_idx: int) -> bool:
        trainer = self.trainer
        if not trainer.enable_validation:
            return False
        every_epochs = trainer.check_val_every_n_epoch
        if every_epochs is not None and (trainer.current_epoch + 1) % every_epochs:
            return False
        if trainer.is_last_batch and trainer.val_check_batch == float("inf"):
            return True
        done = self.batches_seen if every_epochs is None else batch_idx + 1
        return done % trainer.val_check_batch == 0

    def _stops(self) -> bool:
        trainer = self.trainer
        if trainer.max_time is not None and time.monotonic() - self._started >= trainer.max_time:
            trainer.should_stop = True
        enough = trainer.global_step >= (trainer.min_steps or 0) and trainer.current_epoch >= (trainer.min_epochs or 0)
        return self._steps_done() or (trainer.should_stop and enough)

    def _epoch_end(self) -> None:
        trainer = self.trainer
        trainer._reporting.epoch_end(trainer._train_results, "on_train_epoch_end")
        if any(c.reduce_on_plateau and c.interval == "epoch" for c in trainer.lr_scheduler_configs):
            _warn_missing(trainer)
        self._schedule("epoch")


def _warn_missing(trainer: Any) -> None:
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau and not config.strict and config.monitor not in trainer.callback_metrics:
            warnings.warn(f"ReduceLROnPlateau waits for {config.monitor!r}, which was not logged.", stacklevel=2)
