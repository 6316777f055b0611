"""Attributes of the Trainer that several of its arguments make together."""

from __future__ import annotations

from typing import Any

from . import _defaults
from ._options import require_integers, require_interval, seconds_of


class TrainerArguments:
    """How long a run is, and when it validates; `quick` is the number of steps of a development run, or 0."""

    check_val_every_n_epoch: int | None
    limits: dict[str, int | float]
    max_epochs: int
    max_steps: int
    max_time: float | None
    min_epochs: int | None
    min_steps: int | None
    num_sanity_val_steps: int
    val_check_interval: Any

    def _set_length(
        self, quick: int, max_epochs: int | None, min_epochs: int | None, max_steps: int, min_steps: int | None, max_time: Any
    ) -> None:
        require_integers(-1, max_epochs=max_epochs)
        require_integers(0, min_epochs=min_epochs, min_steps=min_steps)
        self.max_epochs, self.max_steps = _defaults.training_length(max_epochs, max_steps, quick, max_time)
        # as in Lightning, a number of steps to reach means whole epochs, at least one
        self.min_epochs = 1 if min_epochs is None and min_steps is not None else min_epochs
        self.min_steps, self.max_time = min_steps, seconds_of(max_time)

    def _set_validation(self, quick: int, interval: Any, every_n_epochs: int | None, sanity_steps: int | None) -> None:
        require_integers(1, check_val_every_n_epoch=every_n_epochs)
        require_integers(-1, num_sanity_val_steps=sanity_steps)
        self.check_val_every_n_epoch = 1 if quick else every_n_epochs
        self.val_check_interval = require_interval(1.0 if quick or interval is None else interval, self.check_val_every_n_epoch)
        self.num_sanity_val_steps = 0 if quick else 2 if sanity_steps is None else sanity_steps

    def _set_limits(self, quick: int, train: Any, val: Any, test: Any, predict: Any) -> None:
        self.limits = _defaults.limits(quick, train=train, val=val, test=test, predict=predict)
