"""State of a run that belongs together: of the evaluation that is running, and of the module's own methods."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from ..data import Sharing


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
