"""`trainer.fit_loop`: where Lightning's users change how long the next fit is, and read how far it has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _lightning_loops
from ._counters import is_within_epoch, load, put
from ._faces import DataSource, ValidationInFit
from ._loop_progress import AutomaticOptimization, LoopProgress, ManualOptimization
from ._stage import Stage

if TYPE_CHECKING:
    from ._trainer import Trainer


class FitLoopLimits:
    """How long fit goes on, by the names of Lightning's loops.

    Args:
        trainer: whose attributes these are.

    Example:
        >>> trainer = L.Trainer(max_epochs=1, devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False)
        >>> trainer.fit(model, loader)
        >>> trainer.fit_loop.max_epochs += 5
        >>> trainer.fit(model, loader)  # five epochs more
        >>> trainer.current_epoch
        6
    """

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    @property
    def max_epochs(self) -> int | None:
        """How many epochs there are in all; -1 for no limit, and None before fit where the Trainer was given no number."""
        return self._trainer.max_epochs

    @max_epochs.setter
    def max_epochs(self, epochs: int | None) -> None:
        self._trainer.max_epochs = epochs

    @property
    def min_epochs(self) -> int | None:
        """How many epochs there are at least."""
        return self._trainer.min_epochs

    @min_epochs.setter
    def min_epochs(self, epochs: int | None) -> None:
        self._trainer.min_epochs = epochs

    @property
    def max_steps(self) -> int:
        """How many optimizer steps there are in all; -1 for no limit."""
        return self._trainer.max_steps

    @max_steps.setter
    def max_steps(self, steps: int) -> None:
        self._trainer.max_steps = steps

    @property
    def min_steps(self) -> int | None:
        """How many optimizer steps there are at least."""
        return self._trainer.min_steps

    @min_steps.setter
    def min_steps(self, steps: int | None) -> None:
        self._trainer.min_steps = steps

    @property
    def restarting(self) -> bool:
        """Whether training is about to go on in the middle of an epoch."""
        run = self._trainer.run
        return (run.progress.resumed is not None and run.counters.in_epoch) or is_within_epoch(run.counters.loaded)

    @property
    def _batches_that_stepped(self) -> int:
        """Under Lightning's name, which callbacks written for it read and set: the step that loggers get for this batch."""
        return self._trainer.batches_that_stepped

    @_batches_that_stepped.setter
    def _batches_that_stepped(self, count: int) -> None:
        self._require_between_steps("epoch_loop._batches_that_stepped", "the hooks after a step can set it")
        run = self._trainer.run
        run.counters.batches_that_stepped += count - _lightning_loops.batches_that_stepped(run)

    @property
    def global_step(self) -> int:
        """Optimizer steps so far."""
        return self._trainer.global_step

    @property
    def _skip_backward(self) -> bool:
        """Under Lightning's name: whether training steps only run forward, for what that changes in the module."""
        return self._trainer.run.skips_backward

    @_skip_backward.setter
    def _skip_backward(self, skips: bool) -> None:
        self._trainer.run.skips_backward = skips

    @property
    def max_batches(self) -> int | float:
        """How many batches an epoch has."""
        return self._trainer.num_training_batches

    @property
    def epoch_progress(self) -> LoopProgress:
        """How many epochs have begun and ended."""
        self._require_between_steps("epoch_progress", "self.current_epoch is a number of the program")
        return self._progress("epoch_progress")

    @property
    def batch_progress(self) -> LoopProgress:
        """How many training batches have begun and ended: `current` of this epoch, `total` of all epochs."""
        self._require_between_steps("batch_progress", "batch_idx and self.global_step are numbers of the program")
        return self._progress("epoch_loop.batch_progress")

    @property
    def scheduler_progress(self) -> LoopProgress:
        """How many steps the learning rate schedulers have made."""
        self._require_between_steps("scheduler_progress", "self.global_step is a number of the program")
        return self._progress("epoch_loop.scheduler_progress")

    @property
    def automatic_optimization(self) -> AutomaticOptimization:
        """How often the optimizer of automatic optimization stepped."""
        self._require_between_steps("automatic_optimization", "self.global_step is a number of the program")
        return AutomaticOptimization.of(self.state_dict(), self._put)

    @property
    def manual_optimization(self) -> ManualOptimization:
        """How often optimizers stepped that the module calls by itself."""
        self._require_between_steps("manual_optimization", "self.global_step is a number of the program")
        return ManualOptimization.of(self.state_dict(), self._put)

    def _progress(self, key: str) -> LoopProgress:
        return LoopProgress.of(self.state_dict()[key], self._put, (key,))

    def _put(self, path: tuple[str, ...], value: int) -> None:
        put(self._trainer.run, path, value)

    def _require_between_steps(self, name: str, instead: str) -> None:
        self._trainer.run.reads.require_between_steps(f"trainer.fit_loop.{name}", instead)

    @property
    def batch_idx(self) -> int:
        """The number of the training batch of this epoch, from 0; -1 before the first."""
        symbols = self._trainer.run.symbols
        if symbols is not None and self._trainer.training:
            return symbols.batch_idx
        return self.batch_progress.current.ready - 1

    @property
    def total_batch_idx(self) -> int:
        """The number of the training batch, counted over all epochs; -1 before the first."""
        run = self._trainer.run
        if run.symbols is not None and self._trainer.training:
            return run.reads.counter("batches_seen")
        return self.batch_progress.total.ready - 1

    def setup_data(self) -> None:
        """Ask for the training loaders now, where they are not there yet: setup hooks may want to look at them."""
        run = self._trainer.run
        if run.train_loader is None:
            run.load_training_data(run.given.get(Stage.FIT))

    def state_dict(self) -> dict[str, Any]:
        """Progress of all loops of fit, as Lightning's checkpoints hold it."""
        return _lightning_loops.fit_loop(self._trainer.run, None)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the progress of all loops of fit; the next fit goes on from it.

        Args:
            state_dict: what `state_dict` gave, or `loops["fit_loop"]` of a checkpoint.
        """
        load(self._trainer.run, state_dict)

    @property
    def done(self) -> bool:
        """Whether training is at its end: no batches, all steps or epochs made, or somebody has asked to stop and may."""
        run, config = self._trainer.run, self._trainer.run.config
        if run.train_loader is not None and not run.num_training_batches:
            return True
        if config.max_steps != -1 and run.counters.global_step >= config.max_steps:
            return True
        if self._progress("epoch_progress").current.processed >= config.last_epoch:
            return True
        return run.should_stop and run.counters.may_stop(config.min_steps, config.min_epochs)

    @property
    def _data_source(self) -> DataSource:
        """Under Lightning's name: where the training loaders come from."""
        return DataSource(self._trainer.run, Stage.FIT)

    @property
    def val_loop(self) -> ValidationInFit:
        """How many batches validation has, and how many of them are done."""
        return ValidationInFit(self._trainer.run)

    @property
    def epoch_loop(self) -> FitLoopLimits:
        """Lightning keeps limits of steps here."""
        return self
