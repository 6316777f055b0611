"""Small faces with the names under which Lightning's callbacks look for parts of a run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ..exceptions import MisconfigurationException
from . import _lightning_loops
from ._counters import put
from ._data_checks import has_loaders
from ._loop_progress import LoopProgress
from ._stage import Stage

if TYPE_CHECKING:
    from ._run import Run


class DataSource:
    """`loop._data_source`: private in Lightning, and what gluonts asks whether a fit validates.

    Args:
        run: the run.
        stage: whose loaders.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage

    @property
    def instance(self) -> Any:
        """The loaders that were given, or the module or datamodule that makes them."""
        run = self._run
        given = run.given.get(self._stage)
        return given if given is not None else run.datamodule or run.module

    def is_defined(self) -> bool:
        """Whether there are loaders: given, or of a module or datamodule that overrides their hook."""
        run = self._run
        return has_loaders(self._stage, run.given.get(self._stage), run.module, run.datamodule)


class StageLoop:
    """`trainer.validate_loop` and the like.

    Args:
        run: the run.
        stage: whose batches.
    """

    def __init__(self, run: Run, stage: Stage) -> None:
        self._run, self._stage = run, stage
        self._data_source = DataSource(run, stage)

    def setup_data(self) -> None:
        """Ask for the loaders now, where they are not there yet."""
        self._run.loaders_and_limits(self._stage)

    @property
    def max_batches(self) -> list[int | float]:
        """How many batches of each loader are used."""
        return self._run.loaders_and_limits(self._stage)[1]

    @property
    def num_dataloaders(self) -> int:
        """How many loaders there are."""
        return len(self.max_batches)

    @property
    def batch_progress(self) -> LoopProgress:
        """How many batches the run evaluated or predicted for; none where it is another's."""
        run = self._run
        is_its = run.call is not None and run.call.stage is self._stage
        return LoopProgress.of(_lightning_loops.evaluated(run.progress.last_validation if is_its else 0), _refuse)


def _refuse(path: tuple[str, ...], value: int) -> None:
    raise MisconfigurationException(
        f"The progress of validate, test and predict begins anew in every run: {'.'.join(path)} = {value} would change nothing."
    )


class ValidationInFit(StageLoop):
    """`trainer.fit_loop.epoch_loop.val_loop`.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run, Stage.VALIDATE)

    @property
    def batch_progress(self) -> LoopProgress:
        """How many validation batches are done: `current` in the last validation, `total` in this epoch's."""
        key, run = "epoch_loop.val_loop.batch_progress", self._run
        return LoopProgress.of(_lightning_loops.fit_loop(run, None)[key], functools.partial(put, run), (key,))


class PredictLoop(StageLoop):
    """`trainer.predict_loop`: what writers of predictions read."""

    @property
    def predictions(self) -> list[Any]:
        """Results of `predict_step` for every batch; for several loaders a list for each of them."""
        found = self._run.predictions
        return found[0] if len(found) == 1 else found

    @property
    def epoch_batch_indices(self) -> list[Any]:
        """For every loader which samples of the dataset each batch held."""
        return self._run.predicted_indices

    @property
    def current_batch_indices(self) -> list[int]:
        """Indices of the dataset's samples that the current batch holds; none where the loader does not tell."""
        current = self._run.predicted_indices[-1:]
        return current[0][-1] if current and current[0] else []


class LoggerFace:
    """View of a run's logging that callbacks ask before they log.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def should_update_logs(self) -> bool:
        """Whether loggers get the values of the next step."""
        run, every = self._run, self._run.config.log_every_n_steps
        return every > 0 and ((run.counters.batches_that_stepped + 1) % every == 0 or run.should_stop)
