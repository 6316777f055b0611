"""Stopping when a metric no longer improves."""

import warnings
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..core import LightningModule
from ._arguments import require_integer, require_number, require_text
from ._console import say
from ._errors import missing_metric, require_mode
from ._protocol import TrainerLike, is_fitting, validates_once_an_epoch
from .callback import Callback


class EarlyStoppingReason(Enum):
    """Why training was stopped."""

    NOT_STOPPED = 0
    STOPPING_THRESHOLD = 1
    DIVERGENCE_THRESHOLD = 2
    PATIENCE_EXHAUSTED = 3
    NON_FINITE_METRIC = 4


class EarlyStopping(Callback):
    """Stop training when a logged metric stops improving.

    Args:
        monitor: Name of the metric.
        min_delta: A change of no more than this is no improvement.
        patience: How many checks without improvement to allow; a check happens once per epoch or validation.
        verbose: Tell about every improvement, and why training stops.
        mode: `"min"` or `"max"`: which values are better.
        strict: Raise when the metric was not logged; False skips the check.
        check_finite: Stop when the metric is NaN or infinite.
        stopping_threshold: Stop at once when the metric is better than this.
        divergence_threshold: Stop at once when the metric is worse than this.
        check_on_train_epoch_end: Whether to check at the end of the epoch or of validation; by default at the end of
            the epoch, unless validation does not run exactly once an epoch.
        log_rank_zero_only: Accepted for Lightning's sake; one process does the talking anyway.

    Attributes:
        wait_count: Checks without improvement so far.
        best_score: The best value so far.
        stopped_epoch: The epoch in which training was stopped; 0 when it was not.
        stopping_reason: Why training was stopped.
        stopping_reason_message: The same as a sentence, or None.
    """

    mode_dict: ClassVar[dict[str, Callable[..., Tensor]]] = {"min": torch.lt, "max": torch.gt}
    order_dict: ClassVar[dict[str, str]] = {"min": "<", "max": ">"}

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: str = "min",
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        owner = type(self).__name__
        require_mode(owner, mode)
        require_text(owner, "monitor", monitor, "val_loss")
        require_integer(owner, "patience", patience, 0)
        require_number(owner, "min_delta", min_delta)
        for name, threshold in (("stopping_threshold", stopping_threshold), ("divergence_threshold", divergence_threshold)):
            if threshold is not None:
                require_number(owner, name, threshold)
        self.monitor = monitor
        self.mode = mode
        # Signed as Lightning's attribute is, so that `current - min_delta` must beat the best score in both modes.
        self.min_delta = min_delta if mode == "max" else -min_delta
        self.patience = patience
        self.verbose = verbose
        self.strict = strict
        self.check_finite = check_finite
        self.stopping_threshold = stopping_threshold
        self.divergence_threshold = divergence_threshold
        self.log_rank_zero_only = log_rank_zero_only
        self.wait_count = 0
        self.stopped_epoch = 0
        self.best_score = torch.tensor(torch.inf if mode == "min" else -torch.inf)
        self.stopping_reason = EarlyStoppingReason.NOT_STOPPED
        self.stopping_reason_message: str | None = None
        self._check_on_train_epoch_end = check_on_train_epoch_end

    def setup(self, trainer: TrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Settle on when checks happen."""
        if self._check_on_train_epoch_end is None:
            self._check_on_train_epoch_end = validates_once_an_epoch(trainer)

    @property
    def monitor_op(self) -> Callable[..., Tensor]:
        """Whether its first value is better than its second."""
        return self.mode_dict[self.mode]

    @property
    def state_key(self) -> str:
        """The class, the metric and the mode."""
        return self._generate_state_key(monitor=self.monitor, mode=self.mode)

    def state_dict(self) -> dict[str, Any]:
        """Counters and the best score, with Lightning's keys."""
        return {
            "wait_count": self.wait_count,
            "stopped_epoch": self.stopped_epoch,
            "best_score": self.best_score,
            "patience": self.patience,
            "stopping_reason": self.stopping_reason.value,
            "stopping_reason_message": self.stopping_reason_message,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up counters and the best score."""
        self.wait_count = state_dict["wait_count"]
        self.stopped_epoch = state_dict["stopped_epoch"]
        self.best_score = state_dict["best_score"]
        self.patience = state_dict["patience"]
        self.stopping_reason = EarlyStoppingReason(state_dict.get("stopping_reason", 0))
        self.stopping_reason_message = state_dict.get("stopping_reason_message")

    def on_train_epoch_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Check, when checks belong to the end of the epoch."""
        if self._check_on_train_epoch_end and not self._should_skip_check(trainer):
            self._run_early_stopping_check(trainer)

    def on_validation_end(self, trainer: TrainerLike, pl_module: LightningModule) -> None:
        """Check, when checks belong to the end of validation."""
        if not self._check_on_train_epoch_end and not self._should_skip_check(trainer):
            self._run_early_stopping_check(trainer)

    def _should_skip_check(self, trainer: TrainerLike) -> bool:
        """Whether this is no training in earnest."""
        return not is_fitting(trainer)

    def _run_early_stopping_check(self, trainer: TrainerLike) -> None:
        """Look at the metric, and end training where that says so."""
        metrics = trainer.callback_metrics
        if trainer.fast_dev_run or not self._validate_condition_metric(metrics):
            return
        should_stop, reason = self._evaluate_stopping_criteria(metrics[self.monitor].detach().clone().squeeze())
        if should_stop:
            trainer.should_stop = True
            self.stopped_epoch = trainer.current_epoch
            self.stopping_reason_message = reason
        if reason and self.verbose:
            say(reason)

    def _validate_condition_metric(self, logs: Mapping[str, Tensor]) -> bool:
        """Whether the metric was logged; when it must be, an error says that it was not."""
        if self.monitor in logs:
            return True
        error = missing_metric(type(self).__name__, self.monitor, logs)
        if self.strict:
            raise error
        if self.verbose:
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        return False

    def _evaluate_stopping_criteria(self, current: Tensor) -> tuple[bool, str | None]:
        """Whether to stop, and what to tell; keeps count of the checks without improvement."""
        reason, message = self._judge(current)
        if reason is not EarlyStoppingReason.NOT_STOPPED:
            self.stopping_reason = reason
        return reason is not EarlyStoppingReason.NOT_STOPPED, message

    def _judge(self, current: Tensor) -> tuple[EarlyStoppingReason, str | None]:
        name, better = f"{self.monitor} = {current:.6g}", self.monitor_op
        if self.check_finite and not torch.isfinite(current):
            message = f"{name} is not finite (best so far: {self.best_score:.3f}). Stopping."
            return EarlyStoppingReason.NON_FINITE_METRIC, message
        if self.stopping_threshold is not None and better(current, self.stopping_threshold):
            message = f"Stopping threshold reached: {name} {self.order_dict[self.mode]} {self.stopping_threshold}."
            return EarlyStoppingReason.STOPPING_THRESHOLD, message
        if self.divergence_threshold is not None and better(-current, -self.divergence_threshold):
            message = f"Divergence threshold reached: {name} is beyond {self.divergence_threshold}."
            return EarlyStoppingReason.DIVERGENCE_THRESHOLD, message
        if better(current - self.min_delta, self.best_score):
            message = self._improvement_message(current)
            self.best_score, self.wait_count = current, 0
            return EarlyStoppingReason.NOT_STOPPED, message
        self.wait_count += 1
        if self.wait_count < self.patience:
            return EarlyStoppingReason.NOT_STOPPED, None
        message = f"{self.monitor} did not improve in {self.wait_count} checks (best: {self.best_score:.3f}). Stopping."
        return EarlyStoppingReason.PATIENCE_EXHAUSTED, message

    def _improvement_message(self, current: Tensor) -> str:
        """The sentence about a new best score."""
        by = f" by {abs(self.best_score - current):.3f}" if self.best_score.isfinite() else ""
        return f"{self.monitor} = {current:.6g} improved{by}."
