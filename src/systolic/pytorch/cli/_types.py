"""Types that a command line's classes are annotated with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jsonargparse import Namespace
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler


class ReduceLROnPlateau(lr_scheduler.ReduceLROnPlateau):
    """PyTorch's scheduler that waits for a plateau, with the name of the metric to look at.

    Args:
        optimizer: the optimizer.
        monitor: the logged value to look at.
        *args: the other arguments of PyTorch's scheduler.
        **kwargs: the same by name.
    """

    def __init__(self, optimizer: Optimizer, monitor: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(optimizer, *args, **kwargs)
        self.monitor = monitor


LRSchedulerTypeTuple = (LRScheduler, ReduceLROnPlateau)
LRSchedulerTypeUnion = LRScheduler | ReduceLROnPlateau
LRSchedulerType = type[LRScheduler] | type[ReduceLROnPlateau]

ArgsType = list[str] | dict[str, Any] | Namespace | None
"""What may stand for the command line: its words, or what they say."""

OptimizerCallable = Callable[[Iterable], Optimizer]
"""An argument of a module that makes its optimizer: `optimizer: OptimizerCallable = torch.optim.Adam`."""

LRSchedulerCallable = Callable[[Optimizer], LRScheduler | ReduceLROnPlateau]
"""An argument of a module that makes its scheduler."""
