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
        run: a fit in `on_fit_start` or later, between steps, or an evaluation before its first batch.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def _stage(self) -> Stage:
        assert self._run.call is not None, "the Trainer's run is of a call"
        return self._run.call.stage

    @property
    def loaders_given(self) -> bool:
        """Whether the loaders were passed to the call, so that they cannot be made anew."""
        return self._run.given[self._stage] is not None

    @property
    def loaders(self) -> int:
        """How many loaders the stage reads one after the other; training's are combined."""
        return 1 if self._stage is Stage.FIT else len(self._run.evaluation_loaders(self._stage)[0])

    @property
    def loader_method(self) -> str:
        """Method that makes the loaders, such as `train_dataloader`."""
        return self._stage.loader

    def trial(self, steps: int, callbacks: Sequence[Callback], memory_limit: int | None = None) -> None:
        """Take a few steps as the call would, without the user's callbacks; then put everything back.

        Args:
            steps: how many optimizer steps, or batches of an evaluation.
            callbacks: called as usual.
            memory_limit: a program that needs more bytes on one device is not run.

        Raises:
            OutOfMemoryError: a program needs more than `memory_limit`.
        """
        trial(self._run, steps, list(callbacks), memory_limit)

    def reload_data(self) -> None:
        """Ask the module or datamodule for its loader again, and count its batches."""
        self._run.reload(self._stage)
        if self._stage is Stage.FIT:  # validation's loader may read the same attribute
            self._run.reload(Stage.VALIDATE)

    def renew_optimizers(self, lr: float) -> None:
        """Use another learning rate: configured anew before the first step, set in the groups later."""
        run = self._run
        if not run.counters.global_step:
            run.configure_optimizers()
        if run.counters.global_step or not run.schedulers:
            for group in (group for optimizer in run.optimizers for group in optimizer.param_groups):
                group["lr"] = lr

    def samples(self) -> int | None:
        """How many samples the loader's set has, where that is known."""
        fits = self._stage is Stage.FIT
        self._run.load_when_asked()
        loader = self._run.train_loader if fits else self._run.evaluation_loaders(self._stage)[0][0]
        dataset = getattr(loader, "dataset", None)  # loaders may be anything that iterates
        return len(dataset) if dataset is not None and has_len(dataset) else None
