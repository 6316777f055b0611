"""Progress of a loop by Lightning's names, which callbacks written for it read."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

Put = Callable[[tuple[str, ...], int], None]
"""Sets a number of the trainer's, by its path in the account that the counts are of."""


def _put(put: Put, at: tuple[str, ...], name: str, value: int) -> None:
    put((*at, name), value)


@dataclass
class LoopCounts:
    """How many batches, epochs or steps have come how far. What is set here is set in the trainer.

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

    _names: ClassVar[Sequence[str]] = ("ready", "started", "processed", "completed")

    @classmethod
    def of(cls, account: dict[str, int], put: Callable[[str, int], None] | None = None) -> Self:
        """Make it of a part of an entry.

        Args:
            account: the part.
            put: sets one of its numbers in the trainer.
        """
        found = cls(**account)
        vars(found).update(_put=put, _names=tuple(account))
        return found

    def __setattr__(self, name: str, value: object) -> None:
        """Set a number here and in the trainer."""
        put = vars(self).get("_put")
        if put is not None and name in self._names and type(value) is int:
            put(name, value)
        super().__setattr__(name, value)

    def __getstate__(self) -> dict[str, Any]:
        """Numbers alone: a copy is of no trainer."""
        return {**vars(self), "_put": None}

    def state_dict(self) -> dict[str, int]:
        """Numbers by their names: those that Lightning counts of such things."""
        return {name: value for name, value in vars(self).items() if name in self._names}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Set numbers by their names."""
        for name, value in state_dict.items():
            setattr(self, name, value)

    def reset(self) -> None:
        """Set all to 0."""
        self.load_state_dict(dict.fromkeys(self.state_dict(), 0))

    def increment_by(self, n: int) -> None:
        """Add to all."""
        self.load_state_dict({name: value + n for name, value in self.state_dict().items()})


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
    def of(cls, account: dict[str, Any], put: Put | None = None, at: tuple[str, ...] = ()) -> Self:
        """Make it of an entry of a checkpoint's `loops`.

        Args:
            account: the entry.
            put: sets a number in the trainer.
            at: the path of the entry.
        """

        def counts(part: str) -> LoopCounts:
            return LoopCounts.of(account[part], None if put is None else functools.partial(_put, put, (*at, part)))

        return cls(counts("total"), counts("current"), account.get("is_last_batch", False))

    def state_dict(self) -> dict[str, Any]:
        """Numbers as a checkpoint's `loops` hold them."""
        return {"total": self.total.state_dict(), "current": self.current.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Set all numbers."""
        self.total.load_state_dict(state_dict["total"])
        self.current.load_state_dict(state_dict["current"])

    def reset(self) -> None:
        """Set all numbers to 0."""
        self.total.reset()
        self.current.reset()

    def reset_on_run(self) -> None:
        """Set the numbers since the loop was entered to 0."""
        self.current.reset()

    def increment_by(self, n: int) -> None:
        """Add to all numbers."""
        self.total.increment_by(n)
        self.current.increment_by(n)


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
    def of(cls, account: dict[str, Any], put: Put) -> Self:
        """Make it of what a checkpoint's `loops` say of fit, and what sets a number in the trainer."""
        key = "epoch_loop.automatic_optimization.optim_progress"
        optimizer, at = account[key]["optimizer"], (key, "optimizer")
        step = LoopProgress.of(optimizer["step"], put, (*at, "step"))
        zero_grad = LoopProgress.of(optimizer["zero_grad"], put, (*at, "zero_grad"))
        return cls(OptimizationProgress(OptimizerProgress(step, zero_grad)))


@dataclass(frozen=True)
class ManualOptimization:
    """`epoch_loop.manual_optimization`.

    Attributes:
        optim_step_progress: steps of all optimizers; none where optimization is automatic.
    """

    optim_step_progress: LoopProgress

    @classmethod
    def of(cls, account: dict[str, Any], put: Put) -> Self:
        """Make it of what a checkpoint's `loops` say of fit, and what sets a number in the trainer."""
        key = "epoch_loop.manual_optimization.optim_step_progress"
        return cls(LoopProgress.of(account[key], put, (key,)))
