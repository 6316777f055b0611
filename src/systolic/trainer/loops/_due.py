"""When training validates, and when it asks for its loaders again."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from ...distributed import agree
from ...utilities._validation_due import epoch_validates, validation_is_due

if TYPE_CHECKING:
    from .._run import Run


class Due:
    """Knows what the Trainer's arguments say of times: `val_check_interval`, `reload_dataloaders_every_n_epochs`.

    Args:
        run: the run.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._last_validation = time.monotonic()

    def start(self) -> None:
        """Training begins: durations count from now."""
        self._last_validation = time.monotonic()

    def sanity_checked(self) -> None:
        """The validation loaders were used before training."""
        if epoch_validates(self._run.counters.epoch, self._run.config.check_val_every_n_epoch):
            self._run.progress.validation_loaded = self._run.counters.epoch

    def validated(self) -> None:
        """A validation has ended."""
        self._last_validation = time.monotonic()

    def validation(self, batch_idx: int, stopping: bool) -> bool:
        """Whether validation runs after this training batch.

        Args:
            batch_idx: the batch's number in the epoch.
            stopping: whether training stops after it.
        """
        run, counters, config = self._run, self._run.counters, self._run.config
        every_n_epochs, interval = config.check_val_every_n_epoch, config.val_check_interval
        if not isinstance(interval, timedelta):
            return validation_is_due(
                counters.epoch, every_n_epochs, batch_idx, run.is_last_batch, run.val_check_batch, counters.batches_seen,
                stopping,
            )  # fmt: skip
        if not epoch_validates(counters.epoch, every_n_epochs):
            return False
        passed = time.monotonic() - self._last_validation >= interval.total_seconds()
        return stopping or (agree(passed) if run.is_shared else passed)

    def new_training_data(self) -> bool:
        """Whether the epoch that begins asks for its loaders again."""
        run, every = self._run, self._run.config.reload_dataloaders_every_n_epochs
        if not every or run.counters.epoch - run.progress.loaded < every:
            return False
        run.progress.loaded = run.counters.epoch
        return True

    def new_validation_data(self) -> bool:
        """Whether the validation that begins asks for its loaders again."""
        run, every, last = self._run, self._run.config.reload_dataloaders_every_n_epochs, self._run.progress.validation_loaded
        if not every or (last is not None and run.counters.epoch - last < every):
            return False
        run.progress.validation_loaded = run.counters.epoch
        return True
