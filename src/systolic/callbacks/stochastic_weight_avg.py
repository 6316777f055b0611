"""Stochastic Weight Averaging: the mean of the weights at the beginning of the last epochs."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import SWALR, get_swa_avg_fn

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..optim import LRSchedulerConfig
from ..utilities._torch_internals import _BatchNorm
from ..utilities.rank_zero import rank_zero_info, rank_zero_warn
from ._averaging import Average, Rule
from ._protocol import SchedulingTrainerLike
from .callback import Callback

AverageFunction = Callable[[Tensor, Tensor, Any], Tensor]


class StochasticWeightAveraging(Callback):
    """Averages the weights of the last epochs under a learning rate of their own, and leaves the module with the average.

    A module with batch norms goes over the training data once more at the end, in an epoch without gradients that is
    validated like any other, to find the statistics that belong to the average.

    Args:
        swa_lrs: the learning rate that is approached, or one for each parameter group.
        swa_epoch_start: the first epoch that is averaged: its number, from 1, or a part of `max_epochs`.
        annealing_epochs: how many epochs the way to `swa_lrs` takes.
        annealing_strategy: "cos" or "linear".
        avg_fn: from an average, the new value and the number of values so far to the new average; default: equal weights.
        device: where the average is kept: "cpu" is the host's memory, to which the weights are fetched once an epoch; None
            the devices that train.

    Raises:
        MisconfigurationException: an argument is impossible; in `fit`, there are several optimizers or schedulers.

    Example:
        >>> from systolic.callbacks import StochasticWeightAveraging
        >>> StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=5).swa_start  # counted from 0
        4
    """

    def __init__(
        self,
        swa_lrs: float | list[float],
        swa_epoch_start: int | float = 0.8,
        annealing_epochs: int = 10,
        annealing_strategy: Literal["cos", "linear"] = "cos",
        avg_fn: AverageFunction | None = None,
        device: torch.device | str | None = torch.device("cpu"),  # noqa: B008 - Lightning's default, and a constant
    ) -> None:
        _require_start(swa_epoch_start)
        _require_rates(swa_lrs)
        if avg_fn is not None and not callable(avg_fn):
            raise MisconfigurationException(f"`avg_fn` expects a function. Received: {avg_fn!r}.")
        if device is not None and (not isinstance(device, torch.device | str) or torch.device(device).type != "cpu"):
            raise MisconfigurationException(
                f"StochasticWeightAveraging(device={device!r}): expected 'cpu', to keep the average in the host's memory, or "
                "None, to keep it on the devices that train."
            )
        self.n_averaged: Tensor | None = None
        self.momenta: dict[_BatchNorm, float | None] = {}
        self._swa_epoch_start = swa_epoch_start
        self._swa_lrs = swa_lrs
        self._annealing_epochs = annealing_epochs
        self._annealing_strategy: Literal["cos", "linear"] = annealing_strategy
        self._avg_fn = avg_fn or self.avg_fn
        self._on_host = device is not None
        self._model_contains_batch_norm = False
        self._average_model: LightningModule | None = None
        self._average: Average | None = None
        self._swa_scheduler: LRScheduler | None = None
        self._scheduler_state: dict[str, Any] | None = None
        self._initialized = False
        self._init_n_averaged = 0
        self._latest_update_epoch = -1
        self._max_epochs = -1

    @property
    def swa_start(self) -> int:
        """The first epoch that is averaged, from 0."""
        assert isinstance(self._swa_epoch_start, int), "on_fit_start makes a number of a part"
        return max(self._swa_epoch_start - 1, 0)

    @property
    def swa_end(self) -> int | float:
        """The last epoch that is averaged, from 0; infinite without `max_epochs`."""
        return float("inf") if self._max_epochs == -1 else self._max_epochs - 1

    @staticmethod
    def pl_module_contains_batch_norm(pl_module: nn.Module) -> bool:
        """Whether a module has a batch norm."""
        return any(isinstance(part, _BatchNorm) for part in pl_module.modules())

    @staticmethod
    def avg_fn(averaged_model_parameter: Tensor, model_parameter: Tensor, num_averaged: Tensor) -> Tensor:
        """The new average, of equal weights."""
        return get_swa_avg_fn()(averaged_model_parameter, model_parameter, num_averaged)

    def setup(self, trainer: SchedulingTrainerLike, pl_module: LightningModule, stage: str) -> None:
        """Make the average: a copy of the module, whose values the first update replaces."""
        self._average_model, self._average = deepcopy(pl_module), None

    def on_fit_start(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> None:
        """Check what fit has, and make room for the epoch of the batch norms."""
        if len(trainer.optimizers) != 1:
            raise MisconfigurationException(
                f"StochasticWeightAveraging needs one optimizer; configure_optimizers gave {len(trainer.optimizers)}."
            )
        if len(trainer.lr_scheduler_configs) > 1:
            raise MisconfigurationException(
                "StochasticWeightAveraging takes the place of one scheduler at most; configure_optimizers gave "
                f"{len(trainer.lr_scheduler_configs)}."
            )
        if isinstance(self._swa_epoch_start, float):
            if trainer.fit_loop.max_epochs == -1:
                raise MisconfigurationException(
                    f"StochasticWeightAveraging(swa_epoch_start={self._swa_epoch_start}) is a part of max_epochs, which is -1. "
                    "Give the number of an epoch."
                )
            self._swa_epoch_start = int(trainer.fit_loop.max_epochs * self._swa_epoch_start)
        self._model_contains_batch_norm = self.pl_module_contains_batch_norm(pl_module)
        self._max_epochs = trainer.fit_loop.max_epochs
        if self._has_epoch_of_statistics:
            trainer.fit_loop.max_epochs += 1
        if self._scheduler_state is not None:
            trainer.lr_scheduler_configs.clear()  # the checkpoint's state is of the scheduler that comes later

    def on_train_start(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> None:
        """Go on in an epoch that a checkpoint is from the middle of: its first hook was called before."""
        if self._scheduler_state is not None and self._averages(trainer):
            self._begin(trainer)
        if self._is_epoch_of_statistics(trainer):
            self._begin_statistics(trainer, pl_module)

    def on_train_epoch_start(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> None:
        """Take the weights into the average; after the last epoch, begin the one of the batch norms."""
        epoch = trainer.current_epoch
        if self._averages(trainer):
            self._begin(trainer)
            if epoch > self._latest_update_epoch:
                self._made(trainer, pl_module).update()
                self._latest_update_epoch = epoch
        if self._is_epoch_of_statistics(trainer):
            self._made(trainer, pl_module).copy_to_module()
            self.reset_batch_norm_and_save_state(pl_module)
            self._begin_statistics(trainer, pl_module)

    def on_train_epoch_end(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> None:
        """End the epoch of the batch norms."""
        trainer.fit_loop._skip_backward = False

    def on_train_end(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> None:
        """Let the module have the average."""
        last = trainer.current_epoch - 1
        if self._has_epoch_of_statistics:
            trainer.fit_loop.max_epochs -= 1
            self.reset_momenta()
        if last == self.swa_end or self._max_epochs == -1:
            self._made(trainer, pl_module).copy_to_module()

    def reset_batch_norm_and_save_state(self, pl_module: nn.Module) -> None:
        """Let the statistics of batch norms begin anew, as means over all batches that follow."""
        for part in _batch_norms(pl_module):
            # in place: other tensors would be other programs
            part.reset_running_stats()
        self._average_all_batches(pl_module)

    def _average_all_batches(self, pl_module: nn.Module) -> None:
        for part in _batch_norms(pl_module):
            self.momenta.setdefault(part, part.momentum)
            part.momentum = None

    def reset_momenta(self) -> None:
        """Give batch norms their momenta again."""
        for part, momentum in self.momenta.items():
            part.momentum = momentum
        self.momenta.clear()

    def _begin_statistics(self, trainer: SchedulingTrainerLike, pl_module: nn.Module) -> None:
        self._average_all_batches(pl_module)
        trainer.fit_loop._skip_backward = True

    def _averages(self, trainer: SchedulingTrainerLike) -> bool:
        return self.swa_start <= trainer.current_epoch <= self.swa_end

    @property
    def _has_epoch_of_statistics(self) -> bool:
        return self._model_contains_batch_norm and self._max_epochs != -1

    def _is_epoch_of_statistics(self, trainer: SchedulingTrainerLike) -> bool:
        return self._has_epoch_of_statistics and trainer.current_epoch == self.swa_end + 1

    def _made(self, trainer: SchedulingTrainerLike, pl_module: LightningModule) -> Average:
        """The average, made when it is first needed."""
        if self._average is None:
            assert self._average_model is not None, "setup comes first"
            if self.n_averaged is None:
                self.n_averaged = torch.tensor(self._init_n_averaged)
            rule = Rule(self.n_averaged, self._avg_fn)
            averaged: list[Tensor] = list(self._average_model.parameters())
            self._average = Average(averaged, pl_module, False, rule, None if self._on_host else trainer.jit)
        return self._average

    def _begin(self, trainer: SchedulingTrainerLike) -> None:
        """Put the scheduler of the averaged epochs in the place of another, once."""
        if self._initialized:
            return
        self._initialized = True
        scheduler = self._swa_scheduler = self._scheduler(trainer)
        if self._scheduler_state is not None:
            scheduler.load_state_dict(self._scheduler_state)
        elif trainer.current_epoch != self.swa_start:
            rank_zero_warn(
                "StochasticWeightAveraging begins after its first epoch, and the checkpoint holds no state of it: it was saved "
                "without the callback."
            )
        configs = trainer.lr_scheduler_configs
        if configs:
            replaced = configs[0]
            if replaced.interval != "epoch" or replaced.frequency != 1:
                rank_zero_warn(
                    "SWA is currently only supported with a scheduler that steps after every epoch: StochasticWeightAveraging "
                    f"puts its own in the place of {replaced}."
                )
            names = type(replaced.scheduler).__name__, type(scheduler).__name__
            rank_zero_info(f"Swapping scheduler `{names[0]}` for `{names[1]}` of StochasticWeightAveraging")
        configs[:] = [LRSchedulerConfig(scheduler)]

    def _scheduler(self, trainer: SchedulingTrainerLike) -> SWALR:
        optimizer = trainer.optimizers[0]
        groups = optimizer.param_groups
        given = self._swa_lrs
        rates = given if isinstance(given, list) else [given] * len(groups)
        for rate, group in zip(rates, groups, strict=False):
            group["initial_lr"] = rate
        last = trainer.fit_loop.max_epochs if self._annealing_strategy == "cos" else -1
        vars(optimizer)["_opt_called"] = True  # as for other schedulers: an attribute that changes would be a new trace
        rate: Any = rates  # PyTorch's annotation knows no list
        return SWALR(optimizer, rate, self._annealing_epochs, self._annealing_strategy, last)

    def state_dict(self) -> dict[str, Any]:
        """The average, of how many values it is, and the scheduler's state."""
        scheduler, average = self._swa_scheduler, self._average_model
        return {
            "n_averaged": 0 if self.n_averaged is None else int(self.n_averaged),  # host sync: a checkpoint is written
            "latest_update_epoch": self._latest_update_epoch,
            "scheduler_state": None if scheduler is None else scheduler.state_dict(),
            "average_model_state": None if average is None else average.state_dict(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take that up."""
        self._init_n_averaged = state_dict["n_averaged"]
        self._latest_update_epoch = state_dict["latest_update_epoch"]
        self._scheduler_state = state_dict["scheduler_state"]
        if self._average_model is not None:
            self._average_model.load_state_dict(state_dict["average_model_state"])


def _batch_norms(module: nn.Module) -> list[_BatchNorm]:
    return [part for part in module.modules() if isinstance(part, _BatchNorm)]


def _require_start(start: object) -> None:
    fits = (isinstance(start, int) and start >= 1) or (isinstance(start, float) and 0 <= start <= 1)
    if not fits:
        raise MisconfigurationException(
            "`swa_epoch_start` expects a >0 integer or a float between 0 and 1: the number of an epoch, or a part of "
            f"max_epochs. Received: {start!r}."
        )


def _require_rates(rates: object) -> None:
    listed = rates if isinstance(rates, list) else [rates]
    if not all(isinstance(rate, float) and rate > 0 for rate in listed):
        raise MisconfigurationException(
            f"`swa_lrs` expects a positive float, or a list of positive floats. Received: {rates!r}."
        )
