"""Protocols: the members of a Trainer that the callbacks of this package read, by shape and not by ancestry."""

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol

from torch import Tensor
from torch.optim import Optimizer

from ..checkpoint import CheckpointIO
from ..diagnostics import Activity
from ..loggers import LoggerProtocol
from ..optim import LRSchedulerConfig
from ..utilities._validation_due import batches_between, validation_is_due


class StateLike(Protocol):
    """The state of the Trainer: what it is doing."""

    @property
    def fn(self) -> Any:
        """`"fit"`, `"validate"`, `"test"` or `"predict"`, or a string enum of these."""
        ...

    @property
    def stage(self) -> Any:
        """`"train"`, `"sanity_check"`, `"validate"`, `"test"` or `"predict"`, or a string enum of these."""
        ...


class SchedulerConfigLike(Protocol):
    """A learning rate scheduler and how it is stepped."""

    scheduler: Any
    name: str | None
    interval: str


class StageLoopLike(Protocol):
    """The loop of an evaluation: how many batches it takes."""

    @property
    def max_batches(self) -> Sequence[int | float]:
        """Of each loader that is read by itself; loaders that are combined are one."""
        ...


class TrainerLike(Protocol):
    """The attributes of a Trainer that callbacks use; names are Lightning's."""

    @property
    def should_stop(self) -> bool:
        """Whether fit ends after the current batch; may be set."""
        ...

    @should_stop.setter
    def should_stop(self, stop: bool) -> None: ...

    @property
    def current_epoch(self) -> int:
        """The epoch, from 0."""
        ...

    @property
    def global_step(self) -> int:
        """Optimizer steps so far."""
        ...

    @property
    def sanity_checking(self) -> bool:
        """Whether the validation before training is running."""
        ...

    @property
    def max_epochs(self) -> int | None:
        """How many epochs there are in all; -1 or None for no limit."""
        ...

    @property
    def max_steps(self) -> int:
        """How many optimizer steps there are in all; -1 for no limit."""
        ...

    @property
    def fast_dev_run(self) -> int | bool:
        """Whether this is a quick development run, or of how many steps."""
        ...

    @property
    def val_check_interval(self) -> int | float | timedelta | str | dict[str, int]:
        """How often validation runs in an epoch."""
        ...

    @property
    def check_val_every_n_epoch(self) -> int | None:
        """In which epochs validation runs; None counts batches across epochs."""
        ...

    @property
    def log_every_n_steps(self) -> int:
        """How often loggers get values of steps."""
        ...

    @property
    def enable_validation(self) -> bool:
        """Whether fit validates."""
        ...

    @property
    def is_last_batch(self) -> bool:
        """Whether no training batch follows in this epoch."""
        ...

    @property
    def num_training_batches(self) -> int | float:
        """How many batches an epoch has."""
        ...

    @property
    def num_val_batches(self) -> Sequence[int | float]:
        """How many batches each validation loader gives."""
        ...

    @property
    def num_sanity_val_batches(self) -> Sequence[int | float]:
        """How many batches of each validation loader the sanity check takes."""
        ...

    @property
    def num_test_batches(self) -> Sequence[int | float]:
        """How many batches each test loader gives."""
        ...

    @property
    def num_predict_batches(self) -> Sequence[int | float]:
        """How many batches each predict loader gives."""
        ...

    @property
    def activity(self) -> Activity | None:
        """Occupation of the main thread, for other threads; None where nobody can tell."""
        ...

    @property
    def default_root_dir(self) -> str | os.PathLike[str]:
        """The directory that files go to."""
        ...

    @property
    def ckpt_path(self) -> str | os.PathLike[str] | None:
        """The checkpoint that the run started from."""
        ...

    @property
    def checkpoint_io(self) -> CheckpointIO:
        """The plugin that writes and reads checkpoints."""
        ...

    @property
    def state(self) -> StateLike:
        """The state of the Trainer: what it is doing."""
        ...

    @property
    def validate_loop(self) -> StageLoopLike:
        """Validation's loop."""
        ...

    @property
    def test_loop(self) -> StageLoopLike:
        """A test's loop."""
        ...

    @property
    def predict_loop(self) -> StageLoopLike:
        """A prediction's loop."""
        ...

    @property
    def is_global_zero(self) -> bool:
        """Whether this is the first process."""
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

    def send_to_logger(self, logger: LoggerProtocol, metrics: Mapping[str, float], step: int) -> None:
        """Send values to a logger, after the values of the steps before and without waiting for these."""
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


class AccumulatingTrainerLike(TrainerLike, Protocol):
    """A further member of a Trainer, for callbacks that count the batches of a step."""

    accumulate_grad_batches: int
    """Of how many batches gradients are accumulated; may be set."""


class ProgramTrainerLike(TrainerLike, Protocol):
    """A further member of a Trainer, for callbacks that change tensors between steps."""

    def jit(self, function: Callable[[], None], like: tuple[list[Tensor], list[Tensor]] | None = None) -> Callable[[], None]:
        """Make a function of the module's tensors, and of some that lie like them, one program on the run's devices."""
        ...


class TransferringRunLike(Protocol):
    """The part of a run that knows the hooks of batch transfer."""

    def transferred(self, batch: object) -> object:
        """A batch after the user's hooks of its transfer, on the host."""
        ...


class TransferringTrainerLike(TrainerLike, Protocol):
    """A further member of a Trainer, for callbacks that call the module themselves."""

    @property
    def run(self) -> TransferringRunLike:
        """The run."""
        ...


class FitLoopLike(Protocol):
    """The part of a Trainer that says how long fit goes on."""

    max_epochs: int
    """How many epochs there are in all; -1 for no limit."""
    _skip_backward: bool
    """Whether training steps only run forward."""


class SchedulingTrainerLike(ProgramTrainerLike, Protocol):
    """Further members of a Trainer, for callbacks that change schedulers and the number of epochs."""

    @property
    def fit_loop(self) -> FitLoopLike:
        """How long fit goes on."""
        ...

    @property
    def lr_scheduler_configs(self) -> list[LRSchedulerConfig]:
        """All learning rate schedulers, as the loop uses them."""
        ...


class StrategyLike(Protocol):
    """The part of a Trainer that deletes checkpoints."""

    def remove_checkpoint(self, filepath: str) -> None:
        """Delete a checkpoint."""
        ...


class EndingTrainerLike(TrainerLike, Protocol):
    """Further members of a Trainer, for callbacks that look at how a run ended."""

    @property
    def interrupted(self) -> bool:
        """Whether an exception ended the run."""
        ...

    @property
    def strategy(self) -> StrategyLike:
        """The part of the Trainer that deletes checkpoints."""
        ...


class DeviceTrainerLike(TrainerLike, Protocol):
    """Further members of a Trainer, for callbacks that look at the devices."""

    @property
    def devices(self) -> Sequence[Any]:
        """The devices that the run uses; empty in eager mode."""
        ...

    @property
    def num_devices(self) -> int:
        """How many cores the run uses."""
        ...

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
    every = batches_between(interval, trainer.num_training_batches)
    before = int(trainer.current_epoch * trainer.num_training_batches) if every_epochs is None else 0
    return validation_is_due(
        trainer.current_epoch, every_epochs, batch_idx, trainer.is_last_batch, every, before + batch_idx + 1
    )
