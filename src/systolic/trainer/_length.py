"""How long fit goes on where the Trainer's arguments leave it open."""

from __future__ import annotations

import dataclasses
import warnings
from typing import TYPE_CHECKING

from ..callbacks import Timer
from ..exceptions import PossibleUserWarning
from ._defaults import first_of

if TYPE_CHECKING:
    from ._config import TrainerConfig


def with_length(config: TrainerConfig) -> TrainerConfig:
    """The configuration of a fit, with its first and its last epoch decided by Lightning's rules.

    Args:
        config: where None means that the argument was not given.

    Returns:
        A configuration whose `max_epochs` and `min_epochs` are numbers; -1 is no limit.
    """
    max_epochs, min_epochs = config.max_epochs, config.min_epochs
    if max_epochs is None:
        ends = config.max_steps != -1 or config.max_time is not None or first_of(config.callbacks, Timer) is not None
        max_epochs = -1 if ends else 1000
        if not ends:
            warnings.warn(
                "`max_epochs` was not set. Setting it to 1000 epochs; -1 means no limit.", PossibleUserWarning, stacklevel=4
            )
    if min_epochs is None:  # a number of steps to reach means whole epochs, at least one
        min_epochs = int(config.min_steps is not None)
    return dataclasses.replace(config, max_epochs=max_epochs, min_epochs=min_epochs)
