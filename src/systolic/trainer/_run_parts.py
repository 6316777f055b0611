"""State of a run that belongs together: of the evaluation that is running, and of the module's own methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from ..data import Sharing
from ..optim import LightningOptimizer


@dataclass
class EvaluatedLoaders:
    """The loaders of the evaluation that is running: how many, the number of the current one, and how processes share it."""

    count: int
    current: int = 0
    sharing: Sharing | None = None


@dataclass
class ModuleState:
    """State that the module's own methods keep during a run, outside of what a step reads.

    Attributes:
        manual_steps: how often the step that runs, or is traced, has called `optimizer.step()`.
        toggled: which parameters required gradients before `toggle_optimizer`.
    """

    manual_steps: int = 0
    toggled: dict[torch.nn.Parameter, bool] = field(default_factory=dict)
    _wrapped: list[LightningOptimizer] = field(default_factory=list[LightningOptimizer])

    def begin_manual_step(self) -> None:
        """A step begins, in which each optimizer's steps count until user code gives it other functions to call."""
        self.manual_steps = 0
        self._wrapped.clear()

    def wrapped(self, optimizers: Sequence[torch.optim.Optimizer]) -> list[LightningOptimizer]:
        """The optimizers as the module's method gets them, the same objects as long as a step goes on.

        Args:
            optimizers: of the run.
        """
        if [one.optimizer for one in self._wrapped] != [*optimizers]:
            self._wrapped = [LightningOptimizer(optimizer, self._note_step) for optimizer in optimizers]
        return list(self._wrapped)

    def _note_step(self) -> None:
        self.manual_steps += 1
