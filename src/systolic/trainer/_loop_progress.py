"""Progress of a loop by Lightning's names, which callbacks written for it read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class LoopCounts:
    """How many batches, epochs or steps have come how far.

    Attributes:
        ready: those that were read.
        started: those whose work has begun.
        processed: those whose work is done.
        completed: those whose hooks are over, too.
    """

    ready: int = 0
    started: int = 0
    processed: int = 0
    completed: int = 0


@dataclass(frozen=True)
class LoopProgress:
    """Counts of a loop.

    Attributes:
        total: since the beginning of training.
        current: since the loop was entered last.
        is_last_batch: whether the last batch is reached; False for what is no batch.
    """

    total: LoopCounts
    current: LoopCounts
    is_last_batch: bool = False

    @classmethod
    def of(cls, account: dict[str, Any]) -> Self:
        """Make it of an entry of a checkpoint's `loops`."""
        total, current = LoopCounts(**account["total"]), LoopCounts(**account["current"])
        return cls(total, current, account.get("is_last_batch", False))


@dataclass(frozen=True)
class OptimizerProgress:
    """Counts of the optimizers.

    Attributes:
        step: their steps.
        zero_grad: how often gradients were set to zero.
    """

    step: LoopProgress
    zero_grad: LoopProgress


@dataclass(frozen=True)
class OptimizationProgress:
    """Counts of automatic optimization.

    Attributes:
        optimizer: of its optimizer.
    """

    optimizer: OptimizerProgress

    @property
    def optimizer_steps(self) -> int:
        """How many steps were made."""
        return self.optimizer.step.total.completed


@dataclass(frozen=True)
class AutomaticOptimization:
    """`epoch_loop.automatic_optimization`.

    Attributes:
        optim_progress: how far it has come; nowhere where the module optimizes by hand.
    """

    optim_progress: OptimizationProgress

    @classmethod
    def of(cls, account: dict[str, Any]) -> Self:
        """Make it of what a checkpoint's `loops` say of fit."""
        optimizer = account["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
        step, zero_grad = LoopProgress.of(optimizer["step"]), LoopProgress.of(optimizer["zero_grad"])
        return cls(OptimizationProgress(OptimizerProgress(step, zero_grad)))


@dataclass(frozen=True)
class ManualOptimization:
    """`epoch_loop.manual_optimization`.

    Attributes:
        optim_step_progress: steps of all optimizers; none where optimization is automatic.
    """

    optim_step_progress: LoopProgress

    @classmethod
    def of(cls, account: dict[str, Any]) -> Self:
        """Make it of what a checkpoint's `loops` say of fit."""
        return cls(LoopProgress.of(account["epoch_loop.manual_optimization.optim_step_progress"]))
