"""The types that scripts annotate their methods with; Lightning's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

STEP_OUTPUT = torch.Tensor | Mapping[str, Any] | None
"""What a step may return."""

TRAIN_DATALOADERS = EVAL_DATALOADERS = Any
"""A loader, or any collection of loaders."""

LRSchedulerTypeUnion = LRScheduler | ReduceLROnPlateau
LRSchedulerPLType = LRSchedulerTypeUnion


class LRSchedulerConfigType(TypedDict, total=False):
    """A scheduler, and how it is stepped."""

    scheduler: LRSchedulerTypeUnion
    name: str | None
    interval: str
    frequency: int
    reduce_on_plateau: bool
    monitor: str | None
    strict: bool


class OptimizerConfig(TypedDict):
    """An optimizer alone."""

    optimizer: Optimizer


class OptimizerLRSchedulerConfig(TypedDict):
    """An optimizer with its scheduler."""

    optimizer: Optimizer
    lr_scheduler: LRSchedulerTypeUnion | LRSchedulerConfigType
    monitor: NotRequired[str]


OptimizerLRScheduler = Any
"""What `configure_optimizers` may return."""
