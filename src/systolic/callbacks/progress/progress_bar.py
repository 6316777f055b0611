"""The base class of progress bars."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from ...core import LightningModule
from .._protocol import TrainerLike
from ..callback import Callback


class ProgressBar(Callback):
    """Base class of progress bars: knows how many batches there are, and which metrics to show.

    The Trainer uses the one among its callbacks, for `LightningModule.print` too. A bar may only show
    `trainer.finished_metrics`: reading anything that is still on its way from the devices, as
    `trainer.progress_bar_metrics` may be, would make every batch wait.
    """

    _current_eval_dataloader_idx: int | None = None

    def __init__(self) -> None:
        self._trainer: TrainerLike | None = None
        self._module: Any = None

    @property
    def trainer(self) -> TrainerLike:
        """The Trainer whose progress is shown."""
        if self._trainer is None:
            raise TypeError(f"{type(self).__name__} has no trainer before setup().")
        return self._trainer

    @property
    def sanity_check_description(self) -> str:
        """The label of the sanity check."""
        return "Sanity Checking"

    @property
    def train_description(self) -> str:
        """The label of training."""
        return "Training"

    @property
    def validation_description(self) -> str:
        """The label of validation."""
        return "Validation"

    @property
    def test_description(self) -> str:
        """The label of testing."""
        return "Testing"

    @property
    def predict_description(self) -> str:
        """The label of prediction."""
        return "Predicting"

    @property
    def total_train_batches(self) -> int | float:
        """Training batches in this epoch; infinite when the loader has no length."""
        batches = self.trainer.num_training_batches
        if self.trainer.max_epochs == -1 and self.trainer.max_steps > 0:
            return min(batches, self.trainer.max_steps - self.trainer.global_step)
        return batches

    @property
    def total_val_batches(self) -> int | float:
        """Validation batches of all loaders; those of the sanity check during it, none in an epoch without validation."""
        trainer = self.trainer
        every = trainer.check_val_every_n_epoch
        if trainer.state.stage == "train" and every is not None and (trainer.current_epoch + 1) % every:
            return 0
        return sum(trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.validate_loop.max_batches)

    @property
    def total_test_batches(self) -> int | float:
        """Test batches of all loaders."""
        return sum(self.trainer.test_loop.max_batches)

    @property
    def total_predict_batches(self) -> int | float:
        """Batches to predict of all loaders."""
        return sum(self.trainer.predict_loop.max_batches)

    def has_dataloader_changed(self, dataloader_idx: int) -> bool:
        """Whether an evaluation has come to another loader since this was asked last.

        Args:
            dataloader_idx: the number of the loader that it has come to.
        """
        before, self._current_eval_dataloader_idx = self._current_eval_dataloader_idx, dataloader_idx
        return before != dataloader_idx

    def reset_dataloader_idx_tracker(self) -> None:
        """Forget the loader: the next evaluation begins with another one."""
        self._current_eval_dataloader_idx = None

    @property
    def total_val_batches_current_dataloader(self) -> int | float:
        """Validation batches of the loader that `has_dataloader_changed` was told last; those of the sanity check during it."""
        trainer = self.trainer
        return self._of_current(trainer.num_sanity_val_batches if trainer.sanity_checking else trainer.num_val_batches)

    @property
    def total_test_batches_current_dataloader(self) -> int | float:
        """Test batches of the loader that `has_dataloader_changed` was told last."""
        return self._of_current(self.trainer.num_test_batches)

    @property
    def total_predict_batches_current_dataloader(self) -> int | float:
        """Batches to predict of the loader that `has_dataloader_changed` was told last."""
        return self._of_current(self.trainer.num_predict_batches)

    def _of_current(self, batches: Sequence[int | float]) -> int | float:
        if self._current_eval_dataloader_idx is None:
            raise TypeError(
                f"{type(self).__name__} does not know the loader. Call self.has_dataloader_changed(dataloader_idx) before, in "
                "a hook that gets its number, such as on_validation_batch_start."
            )
        return batches[self._current_eval_dataloader_idx]

    def epoch_description(self, epoch: int | None = None) -> str:
        """`"Epoch 3/9"`; the last epoch is left out when nobody knows it. By default of the current epoch."""
        last = self.trainer.max_epochs
        known = last is not None and last > 0 and math.isfinite(last)
        return f"Epoch {self.trainer.current_epoch if epoch is None else epoch}" + (
            f"/{last - 1}" if last is not None and known else ""
        )

    def enable(self) -> None:
        """Show progress."""
        raise NotImplementedError(f"{type(self).__name__} must define enable().")

    def disable(self) -> None:
        """Show nothing."""
        raise NotImplementedError(f"{type(self).__name__} must define disable().")

    def print(self, *values: Any, sep: str | None = " ", end: str | None = "\n", **kwargs: Any) -> None:
        """Print without breaking the bar; arguments are those of Python's `print`."""
        print_on(Console(file=kwargs.get("file")), values, sep, end)

    def setup(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Keep the Trainer and the module; of several processes the first one alone shows progress."""
        self._trainer, self._module = trainer, pl_module
        if not trainer.is_global_zero:
            self.disable()

    def get_metrics(self, trainer: TrainerLike, pl_module: LightningModule) -> dict[str, Any]:
        """Metrics to show behind the bar, the loggers' version among them as `v_num`; override to add or remove something."""
        return {**get_standard_metrics(trainer), **trainer.finished_metrics}

    def on_trace_start(self, trainer: TrainerLike, description: str) -> None:
        """Called when the Trainer begins to trace a step; `on_compile_start` follows unless its program is there already."""

    def on_compile_start(self, trainer: TrainerLike, description: str) -> None:
        """Called when XLA begins to compile a step."""

    def on_compile_end(
        self, trainer: TrainerLike, seconds: float, saved_seconds: float = 0.0, trace_seconds: float = 0.0
    ) -> None:
        """Called when the step can run.

        Args:
            trainer: the trainer.
            seconds: what XLA took.
            saved_seconds: by how much the cache on disk made that shorter.
            trace_seconds: what PyTorch's tracing took before.
        """


def get_standard_metrics(trainer: TrainerLike) -> dict[str, int | str]:
    """Metrics behind every bar: the loggers' version as `v_num`, of a long one the last four characters.

    Args:
        trainer: the trainer; without loggers that have versions there is nothing to show.
    """
    versions = dict.fromkeys(logger.version for logger in trainer.loggers)
    told = [version for version in versions if version is not None and version != ""]
    if not told:
        return {}
    return {"v_num": told[0] if len(told) == 1 and isinstance(told[0], int) else "_".join(map(str, told))[-4:]}


def print_on(console: Console, values: Sequence[Any], sep: str | None, end: str | None) -> None:
    """Print on a console of rich's what Python's `print` would, and nothing that rich would make of it."""
    text = (" " if sep is None else sep).join(map(str, values))
    console.print(text, end="\n" if end is None else end, markup=False, highlight=False, soft_wrap=True)
