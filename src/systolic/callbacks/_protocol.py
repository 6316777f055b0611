"""What the callbacks of this package read from a Trainer, by shape and not by ancestry."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer

from systolic.checkpoint import CheckpointIO
from systolic.loggers import LoggerProtocol


class StateLike(Protocol):
    """What the Trainer is doing."""

    @property
    def fn(self) -> Any:
        """`"fit"`, `"validate"`, `"test"` or `"predict"`, or a string enum of these."""
        ...

    @property
    def stage(self) -> Any:
        """`"train"`, `"sanity_check"`, `"validation"`, `"test"` or `"predict"`."""
        ...


class SchedulerConfigLike(Protocol):
    """A learning rate scheduler and how it is stepped."""

    scheduler: Any
    name: str | None
    interval: str


class TrainerLike(Protocol):
    """The attributes of a Trainer that callbacks use; names are Lightning's."""

    should_stop: bool
    current_epoch: int
    global_step: int
    sanity_checking: bool
    max_epochs: int | None
    max_steps: int
    fast_dev_run: int | bool
    val_check_interval: int | float | timedelta | str | dict[str, int]
    check_val_every_n_epoch: int | None
    log_every_n_steps: int
    enable_validation: bool
    is_last_batch: bool
    num_training_batches: int | float
    num_val_batches: Sequence[int | float]
    num_sanity_val_batches: Sequence[int | float]
    num_test_batches: Sequence[int | float]
    num_predict_batches: Sequence[int | float]
    default_root_dir: str | os.PathLike[str]
    ckpt_path: str | os.PathLike[str] | None
    checkpoint_io: CheckpointIO

    @property
    def state(self) -> StateLike:
        """What the Trainer is doing."""
        ...

    @property
    def loggers(self) -> Sequence[LoggerProtocol]:
        """All loggers."""
        ...

    @property
    def optimizers(self) -> Sequence[Optimizer]:
        """All optimizers."""
        ...

    @property
    def lr_scheduler_configs(self) -> Sequence[SchedulerConfigLike]:
        """All learning rate schedulers."""
        ...

    @property
    def batches_that_stepped(self) -> int:
        """Batches after which an optimizer stepped: the step of loggers. Several optimizers may step in one batch."""
        ...

    def add_callback_metrics(self, values: Mapping[str, Tensor]) -> None:
        """Put values into `callback_metrics` without waiting for those that are on their way."""
        ...

    @property
    def callback_metrics(self) -> dict[str, Tensor]:
        """The newest value of everything that was logged."""
        ...

    @property
    def finished_metrics(self) -> dict[str, Any]:
        """Numbers of `self.log(..., prog_bar=True)` that have arrived from the devices."""
        ...

    def save_checkpoint(self, filepath: str, weights_only: bool = False) -> None:
        """Write a checkpoint."""
        ...


class DeviceTrainerLike(TrainerLike, Protocol):
    """What callbacks that look at the devices use besides."""

    devices: Sequence[Any]
    num_devices: int

    def model_flops(self, stage: str) -> int | None:
        """FLOPs of one step of a stage over all devices."""
        ...


def is_fitting(trainer: TrainerLike) -> bool:
    """Whether this is `fit` in earnest, and not its sanity check."""
    return trainer.state.fn == "fit" and not trainer.sanity_checking


def validates_once_an_epoch(trainer: TrainerLike) -> bool:
    """Whether validation runs exactly at the end of every epoch; the integer 1 means after every batch."""
    interval = trainer.val_check_interval
    return isinstance(interval, float) and interval == 1.0 and trainer.check_val_every_n_epoch == 1


def has_validation(trainer: TrainerLike) -> bool:
    """Whether `fit` validates at all; an empty list of batch counts means that the loaders are not made yet."""
    batches = trainer.num_val_batches
    return trainer.enable_validation and (not batches or sum(batches) > 0)


def validation_follows(trainer: TrainerLike, batch_idx: int) -> bool:
    """Whether validation runs right after this training batch; unknown for time intervals, then False."""
    every_epochs, interval = trainer.check_val_every_n_epoch, trainer.val_check_interval
    if not has_validation(trainer) or not isinstance(interval, int | float):
        return False
    if every_epochs is not None and (trainer.current_epoch + 1) % every_epochs:
        return False
    if isinstance(interval, float) and (interval == 1.0 or trainer.num_training_batches == float("inf")):
        return trainer.is_last_batch
    batches = interval if isinstance(interval, int) else max(1, int(trainer.num_training_batches * interval))
    before = int(trainer.current_epoch * trainer.num_training_batches) if every_epochs is None else 0
    return (before + batch_idx + 1) % batches == 0
