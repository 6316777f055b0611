"""Operations that finders of learning rates and batch sizes ask of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...callbacks import Callback
from ...data import has_len
from .._stage import Stage
from ._trial import trial

if TYPE_CHECKING:
    from .._run import Run


class Tuning:
    """Trials of a few steps, and what follows from them: other optimizers, other loaders.

    Args:
        run: a fit in `on_fit_start` or later, between steps.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def loaders_given(self) -> bool:
        """Whether the training loaders were passed to fit, so that they cannot be made anew."""
        return self._run.given[Stage.FIT] is not None

    def trial(self, steps: int, callbacks: Sequence[Callback], memory_limit: int | None = None) -> None:
        """Train a few steps as `fit` would, without the user's callbacks; then put everything back.

        Args:
            steps: how many optimizer steps.
            callbacks: called as in `fit`.
            memory_limit: a program that needs more bytes on one device is not run.

        Raises:
            OutOfMemoryError: a program needs more than `memory_limit`.
        """
        trial(self._run, steps, list(callbacks), memory_limit)

    def reload_training_data(self) -> None:
        """Ask the module or datamodule for its training loader again, and count its batches."""
        self._run.load_training_data(None)
        self._run.set_validation_interval()

    def renew_optimizers(self, lr: float) -> None:
        """Use another learning rate: configured anew before the first step, set in the groups later."""
        run = self._run
        if not run.counters.global_step:
            run.configure_optimizers()
        if run.counters.global_step or not run.schedulers:
            for group in (group for optimizer in run.optimizers for group in optimizer.param_groups):
                group["lr"] = lr

    def training_samples(self) -> int | None:
        """How many samples the training set has, where that is known."""
        dataset = getattr(self._run.train_loader, "dataset", None)  # loaders may be anything that iterates
        return len(dataset) if dataset is not None and has_len(dataset) else None
