"""Stages of a Trainer: one vocabulary for its methods, its loops, their loaders, their hooks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class _Name(str, Enum):  # noqa: UP042  # a StrEnum is formatted as its text
    """A text with a name, as Lightning's: equal to its text in any case, and formatted as `RunningStage.TRAINING`."""

    def __eq__(self, other: object) -> bool:
        return self.value.lower() == str(other.value if isinstance(other, Enum) else other).lower()

    def __hash__(self) -> int:
        return hash(self.value.lower())


class TrainerFn(_Name):
    """The Trainer's method that runs: `trainer.state.fn`, with Lightning's names and values."""

    FITTING = "fit"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"


class TrainerStatus(_Name):
    """How that goes: `trainer.state.status`, with Lightning's names and values."""

    INITIALIZING = "initializing"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"


class RunningStage(_Name):
    """Stage of that method: `trainer.state.stage`, with Lightning's names and values."""

    TRAINING = "train"
    SANITY_CHECKING = "sanity_check"
    VALIDATING = "validate"
    TESTING = "test"
    PREDICTING = "predict"

    @property
    def evaluating(self) -> bool:
        """Whether batches are evaluated, and none trained on or predicted for."""
        return self in (self.VALIDATING, self.TESTING, self.SANITY_CHECKING)

    @property
    def dataloader_prefix(self) -> str:
        """Prefix of the arguments of its loaders: "train", "val", "test" or "predict"."""
        return "val" if self in (self.VALIDATING, self.SANITY_CHECKING) else self.value


@dataclass(frozen=True, eq=False)
class _Names:
    """Names of a stage's parts.

    Attributes:
        fn: the Trainer's method to which it belongs.
        running: what `trainer.state.stage` says.
        step: the module's method.
        loader: the method of module or datamodule that makes its loaders.
        data: the stem of the Trainer's arguments for it, `limit_{data}_batches` and `{data}_dataloaders`.
        start, end, epoch_start, epoch_end, batch_start, batch_end: its hooks.
        model_eval, model_train: the module's hooks that switch modes; "" where there is none.
    """

    fn: TrainerFn
    running: RunningStage
    step: str
    loader: str
    data: str
    start: str
    end: str
    epoch_start: str
    epoch_end: str
    batch_start: str
    batch_end: str
    model_eval: str = ""
    model_train: str = ""


class Stage(_Names, Enum):
    """One of the five things that a Trainer does with batches."""

    FIT = (
        TrainerFn.FITTING, RunningStage.TRAINING, "training_step", "train_dataloader", "train",
        "on_train_start", "on_train_end", "on_train_epoch_start", "on_train_epoch_end",
        "on_train_batch_start", "on_train_batch_end",
    )  # fmt: skip
    VALIDATE = (
        TrainerFn.VALIDATING, RunningStage.VALIDATING, "validation_step", "val_dataloader", "val",
        "on_validation_start", "on_validation_end", "on_validation_epoch_start", "on_validation_epoch_end",
        "on_validation_batch_start", "on_validation_batch_end", "on_validation_model_eval", "on_validation_model_train",
    )  # fmt: skip
    TEST = (
        TrainerFn.TESTING, RunningStage.TESTING, "test_step", "test_dataloader", "test",
        "on_test_start", "on_test_end", "on_test_epoch_start", "on_test_epoch_end",
        "on_test_batch_start", "on_test_batch_end", "on_test_model_eval", "on_test_model_train",
    )  # fmt: skip
    PREDICT = (
        TrainerFn.PREDICTING, RunningStage.PREDICTING, "predict_step", "predict_dataloader", "predict",
        "on_predict_start", "on_predict_end", "on_predict_epoch_start", "on_predict_epoch_end",
        "on_predict_batch_start", "on_predict_batch_end", "on_predict_model_eval", "on_predict_model_train",
    )  # fmt: skip
    SANITY_CHECK = (
        TrainerFn.FITTING, RunningStage.SANITY_CHECKING, "validation_step", "val_dataloader", "val",
        "on_validation_start", "on_validation_end", "on_validation_epoch_start", "on_validation_epoch_end",
        "on_validation_batch_start", "on_validation_batch_end", "on_validation_model_eval", "on_validation_model_train",
    )  # fmt: skip

    def __reduce_ex__(self, protocol: object) -> tuple[Callable[..., Any], tuple[type[Stage], str]]:
        """Pickle by name: the value of a member is an object of its own after unpickling."""
        return getattr, (Stage, self.name)


STAGE_OF: dict[str, Stage] = {stage.fn.value: stage for stage in Stage if stage is not Stage.SANITY_CHECK}
"""The main stage of a Trainer's method, by the method's name."""


@dataclass
class TrainerState:
    """The run's state.

    Attributes:
        fn: the method that runs, or ran last; None before the first run.
        stage: what it is doing; None before the first run.
        status: "initializing" before the first run, then "running", and "finished" or "interrupted".
    """

    fn: TrainerFn | None = None
    stage: RunningStage | None = None
    status: TrainerStatus = TrainerStatus.INITIALIZING

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.status == TrainerStatus.FINISHED

    @property
    def stopped(self) -> bool:
        """Whether the run came to its end, or was ended."""
        return self.status in (TrainerStatus.FINISHED, TrainerStatus.INTERRUPTED)
