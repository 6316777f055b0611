"""`trainer.fit_loop`: where Lightning's users change how long the next fit is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._faces import StageLoop
    from ._trainer import Trainer


class FitLoopLimits:
    """How long fit goes on, by the names of Lightning's loops.

    Args:
        trainer: whose attributes these are.

    Example:
        >>> trainer.fit(model, loader)  # doctest: +SKIP
        >>> trainer.fit_loop.max_epochs += 5  # doctest: +SKIP
        >>> trainer.fit(model, loader)  # five epochs more  # doctest: +SKIP
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
    def restarting(self) -> bool:
        """Whether training is about to go on in the middle of an epoch."""
        run = self._trainer.run
        return run.progress.resumed is not None and run.counters.in_epoch

    @property
    def _batches_that_stepped(self) -> int:
        """Under Lightning's name, which callbacks written for it read."""
        return self._trainer.batches_that_stepped

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
    def val_loop(self) -> StageLoop:
        """How many batches validation has."""
        return self._trainer.validate_loop

    @property
    def epoch_loop(self) -> FitLoopLimits:
        """Lightning keeps limits of steps here."""
        return self
