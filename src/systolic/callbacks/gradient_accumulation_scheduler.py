"""Accumulating gradients over more batches, or fewer, from some epoch on."""

import warnings

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from ..utilities._overrides import overrides
from ._protocol import AccumulatingTrainerLike
from .callback import Callback


class GradientAccumulationScheduler(Callback):
    """Changes `accumulate_grad_batches` at the beginning of epochs.

    Each number of batches is one more program, compiled when its first epoch comes.

    Args:
        scheduling: from which epoch, counted from 0, gradients of how many batches are accumulated. Before the first of them
            it is one batch.

    Raises:
        TypeError: the argument is empty, or its keys and values are no integers.
        MisconfigurationException: an epoch is below 0, or a number below 1.

    Example:
        >>> from systolic.callbacks import GradientAccumulationScheduler
        >>> [GradientAccumulationScheduler({2: 4}).get_accumulate_grad_batches(epoch) for epoch in range(4)]
        [1, 1, 4, 4]
    """

    def __init__(self, scheduling: dict[int, int]) -> None:
        if not scheduling:
            raise TypeError("GradientAccumulationScheduler(scheduling) expects a dict of epochs, such as {4: 2}. It is empty.")
        if not isinstance(scheduling, dict):
            raise TypeError(f"GradientAccumulationScheduler({scheduling!r}): expected a dict of epochs, such as {{4: 2}}.")
        if any(not isinstance(number, int) for number in (*scheduling, *scheduling.values())):
            raise MisconfigurationException(
                "GradientAccumulationScheduler(scheduling): Epoch should be an int, and an Accumulation factor should be an "
                f"int, such as {{4: 2}}. Received: {scheduling}."
            )
        if any(epoch < 0 for epoch in scheduling):
            raise MisconfigurationException(f"Epoch should be an int of at least 0. Received scheduling={scheduling}.")
        if any(factor < 1 for factor in scheduling.values()):
            raise MisconfigurationException(
                f"Accumulation factor should be an int of at least 1. Received scheduling={scheduling}."
            )
        self.scheduling = {**({} if 0 in scheduling else {0: 1}), **scheduling}
        self.epochs = sorted(self.scheduling)

    def going_to_accumulate_grad_batches(self) -> bool:
        """Whether gradients of more than one batch are ever accumulated."""
        return any(factor > 1 for factor in self.scheduling.values())

    def get_accumulate_grad_batches(self, epoch: int) -> int:
        """How many batches' gradients are accumulated in an epoch."""
        return self.scheduling[max(begin for begin in self.epochs if begin <= epoch)]

    def on_train_start(self, trainer: AccumulatingTrainerLike, pl_module: LightningModule) -> None:
        """Refuse what the schedule would contradict."""
        if not pl_module.automatic_optimization:
            raise RuntimeError(
                "Automatic gradient accumulation and the `GradientAccumulationScheduler` need automatic optimization: in "
                "manual optimization training_step decides when to step. Remove the callback, or set automatic_optimization = "
                "True."
            )
        written = ("optimizer_step", "optimizer_zero_grad")
        if self.going_to_accumulate_grad_batches() and any(overrides(pl_module, name, LightningModule) for name in written):
            warnings.warn(
                f"{type(pl_module).__name__} has an `optimizer_step` or `optimizer_zero_grad` of its own, and with gradient "
                "accumulation the hooks will not be called on every batch, rather on every step of the optimizer.",
                stacklevel=2,
            )
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                "You set `accumulate_grad_batches` and are using the `GradientAccumulationScheduler`: "
                f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}) contradicts it. Remove one of them; the "
                "callback's {0: N} means the same."
            )
        # a run that goes on in the middle of an epoch does not begin it
        trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(trainer.current_epoch)

    def on_train_epoch_start(self, trainer: AccumulatingTrainerLike, pl_module: LightningModule) -> None:
        """Set this epoch's number."""
        trainer.accumulate_grad_batches = self.get_accumulate_grad_batches(trainer.current_epoch)
