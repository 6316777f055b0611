"""What finders of learning rates and batch sizes ask of the Trainer."""

from __future__ import annotations

from typing import Any

import torch

from ..callbacks import Callback
from ..data import has_len
from ..optim import LRSchedulerConfig, read_configuration
from ._options import validation_interval
from ._trial import reload_training_data, trial


class TrainerTuning:
    """The part of the Trainer that prepares optimizers and intervals, and runs trials."""

    check_val_every_n_epoch: int | None
    lightning_module: Any
    lr_scheduler_configs: list[LRSchedulerConfig]
    num_training_batches: int | float
    optimizers: list[torch.optim.Optimizer]
    val_check_batch: int | float
    val_check_interval: Any
    _global_step: int
    _train_loader: Any

    def _set_validation_interval(self) -> None:
        self.val_check_batch = validation_interval(
            self.val_check_interval, self.num_training_batches, self.check_val_every_n_epoch
        )

    def _configure_optimizers(self) -> None:
        model = self.lightning_module
        configuration = read_configuration(model, model.configure_optimizers(), model.automatic_optimization)
        self.optimizers, self.lr_scheduler_configs = configuration.optimizers, configuration.schedulers
        for config in self.lr_scheduler_configs:
            # schedulers make optimizers note their first step; an attribute that changes in it would be a new trace
            stepped: Any = getattr(config.scheduler, "optimizer", config)
            stepped._opt_called = True

    def _renew_optimizers(self, lr: float) -> None:
        """Use another learning rate: configured anew before the first step, set in the groups later."""
        if not self._global_step:
            self._configure_optimizers()
        if self._global_step or not self.lr_scheduler_configs:
            for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
                group["lr"] = lr

    def _trial(self, steps: int, callbacks: list[Callback], memory_limit: int | None = None) -> None:
        trial(self, steps, callbacks, memory_limit)

    def _reload_training_data(self) -> None:
        reload_training_data(self)

    def _training_samples(self) -> int | None:
        """How many samples the training set has, where that is known."""
        dataset = getattr(self._train_loader, "dataset", None)  # loaders may be anything that iterates
        return len(dataset) if dataset is not None and has_len(dataset) else None
