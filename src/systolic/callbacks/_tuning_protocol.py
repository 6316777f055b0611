"""Protocols: the members of a Trainer that finders of learning rates and batch sizes use."""

from collections.abc import Sequence
from typing import Protocol

from ..core import LightningDataModule, LightningModule
from ._protocol import DeviceTrainerLike
from .callback import Callback


class TuningLike(Protocol):
    """Trials of a few steps, and what follows from them."""

    @property
    def loaders_given(self) -> bool:
        """Whether the training loaders were passed to fit."""
        ...

    def trial(self, steps: int, callbacks: Sequence[Callback], memory_limit: int | None = None) -> None:
        """Train a few steps, then put everything back."""
        ...

    def reload_training_data(self) -> None:
        """Ask for the training loader again."""
        ...

    def renew_optimizers(self, lr: float) -> None:
        """Use another learning rate."""
        ...

    def training_samples(self) -> int | None:
        """How many samples the training set has, where that is known."""
        ...


class TuningTrainerLike(DeviceTrainerLike, Protocol):
    """Further members of a Trainer, for finders."""

    @property
    def tuning(self) -> TuningLike:
        """Trials of a few steps."""
        ...

    @property
    def lightning_module(self) -> LightningModule | None:
        """The module that is run."""
        ...

    @property
    def datamodule(self) -> LightningDataModule | None:
        """The datamodule that loaders come from, if not from the module."""
        ...
