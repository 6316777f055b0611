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
        """Whether the loaders were passed to the call."""
        ...

    @property
    def loaders(self) -> int:
        """How many loaders are read one after the other."""
        ...

    @property
    def loader_method(self) -> str:
        """Method that makes the loaders."""
        ...

    def trial(self, steps: int, callbacks: Sequence[Callback], memory_limit: int | None = None) -> None:
        """Take a few steps, then put everything back."""
        ...

    def reload_data(self) -> None:
        """Ask for the loader again."""
        ...

    def renew_optimizers(self, lr: float) -> None:
        """Use another learning rate."""
        ...

    def samples(self) -> int | None:
        """How many samples the loader's set has, where that is known."""
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
