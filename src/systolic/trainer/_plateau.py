"""The metric that a plateau scheduler waits for."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from ..exceptions import MisconfigurationException
from ..optim import LRSchedulerConfig
from ..utilities._suggest import suggest

if TYPE_CHECKING:
    from ._run import Run


def monitored(run: Run, config: LRSchedulerConfig) -> torch.Tensor | None:
    """The metric's newest value; None leaves the learning rate as it is.

    Raises:
        MisconfigurationException: it was not logged and the scheduler is strict.
    """
    assert config.monitor is not None, "a plateau scheduler without a monitor was refused"
    metrics = run.reporting.settled().metrics
    value = metrics.get(config.monitor)
    if value is None and config.strict:
        raise MisconfigurationException(
            f"ReduceLROnPlateau conditioned on metric {config.monitor!r} which is not available. "
            f"Available metrics are: {sorted(metrics)}. Log it with self.log, or set 'strict': False."
            f"{suggest(config.monitor, metrics)}"
        )
    if value is None:
        warnings.warn(
            f"ReduceLROnPlateau conditioned on metric {config.monitor!r} which is not available but strict is False: the "
            "learning rate stays.",
            RuntimeWarning,
            stacklevel=2,
        )
    return value
