"""Measuring time, and stopping when it is up."""

import re
import time
from datetime import timedelta
from typing import Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ._console import say
from ._protocol import TrainerLike
from .callback import Callback

_STAGES = ("train", "sanity_check", "validate", "test", "predict")
_NEVER = float("inf")


class Timer(Callback):
    """Measure the time spent in training, validation and testing, and stop training when its time is up.

    Args:
        duration: Limit for training: `"DD:HH:MM:SS"`, a `timedelta` or a dict of its arguments; None only measures.
            Time spent before a resume counts.
        interval: Whether to look at the clock after each `"step"` or each `"epoch"`.
        verbose: Tell when the time is up.
    """

    def __init__(
        self,
        duration: str | timedelta | dict[str, int] | None = None,
        interval: str = "step",
        verbose: bool = True,
    ) -> None:
        if interval not in ("step", "epoch"):
            raise MisconfigurationException(
                f"Timer(interval={interval!r}): Unsupported parameter value, expected 'step' or 'epoch'."
            )
        self._duration = None if duration is None else _seconds(duration)
        self._interval = str(interval)
        self._verbose = verbose
        self._start: dict[str, float | None] = dict.fromkeys(_STAGES)
        self._end: dict[str, float | None] = dict.fromkeys(_STAGES)
        self._offset = 0.0
        self._step_deadline = _NEVER

    def start_time(self, stage: str = "train") -> float | None:
        """When a stage (`train`, `validate`, `test`) began, by `time.monotonic()`; None when it did not."""
        return self._start[_stage(stage)]

    def end_time(self, stage: str = "train") -> float | None:
        """When a stage ended, by `time.monotonic()`; None when it did not."""
        return self._end[_stage(stage)]

    def time_elapsed(self, stage: str = "train") -> float:
        """Seconds spent in a stage; for training those before a resume included."""
        start, end = self.start_time(stage), self.end_time(stage)
        offset = self._offset if stage == "train" else 0.0
        if start is None:
            return offset
        return (time.monotonic() if end is None else end) - start + offset

    def time_remaining(self, stage: str = "train") -> float | None:
        """Seconds left; None without a limit."""
        return None if self._duration is None else self._duration - self.time_elapsed(stage)

    def on_fit_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Stop at once when a resumed run has used up its time."""
        self._check(trainer)

    def on_train_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Start training's clock."""
        self._begin("train")
        if self._duration is not None and self._interval == "step":
            self._step_deadline = time.monotonic() + self._duration - self._offset

    def on_train_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Stop training's clock."""
        self._end["train"] = time.monotonic()

    def teardown(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Stop training's clock where an exception ended it."""
        if self._start["train"] is not None and self._end["train"] is None:
            self._end["train"] = time.monotonic()

    def on_validation_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Start validation's clock."""
        self._begin("validate")

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Stop validation's clock."""
        self._end["validate"] = time.monotonic()

    def on_test_start(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Start testing's clock."""
        self._begin("test")

    def on_test_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Stop testing's clock."""
        self._end["test"] = time.monotonic()

    def on_step_dispatched(self, trainer: TrainerLike, pl_module: LightningModule, batch_idx: int) -> None:
        """Stop training when its time is up."""
        if time.monotonic() >= self._step_deadline and trainer.state.stage == "train":
            self._check(trainer)

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Stop training when its time is up."""
        if self._interval == "epoch":
            self._check(trainer)

    def state_dict(self) -> dict[str, Any]:
        """Seconds spent, with Lightning's keys."""
        return {"time_elapsed": {stage: self.time_elapsed(stage) for stage in _STAGES}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Count the seconds that training took before; where training goes back to a checkpoint, its clock does not."""
        if self._start["train"] is not None and self._end["train"] is None:
            return
        self._offset = float(state_dict.get("time_elapsed", {}).get("train", 0.0))

    def _begin(self, stage: str) -> None:
        self._start[stage], self._end[stage] = time.monotonic(), None

    def _check(self, trainer: TrainerLike) -> None:
        if self._duration is None or self.time_elapsed() < self._duration:
            return
        trainer.should_stop = True
        self._step_deadline = _NEVER
        if self._verbose:
            say(f"Time limit reached after {timedelta(seconds=int(self.time_elapsed()))}. Stopping.")


def _stage(stage: str) -> str:
    if stage not in _STAGES:
        raise MisconfigurationException(f"Timer: unknown stage {stage!r}. Expected one of {', '.join(_STAGES)}.")
    return stage


def _seconds(duration: str | timedelta | dict[str, int]) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, dict):
        return timedelta(**duration).total_seconds()
    parts = re.fullmatch(r"(\d+):(\d\d):(\d\d):(\d\d)", str(duration).strip())
    if parts is None:
        raise MisconfigurationException(
            f"Timer(duration={duration!r}): expected text in the format DD:HH:MM:SS, as in '00:12:00:00', a timedelta or a "
            "dict."
        )
    days, hours, minutes, seconds = map(int, parts.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds).total_seconds()
