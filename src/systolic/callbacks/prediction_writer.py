"""The base class of callbacks that write predictions."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from ..core import LightningModule
from ..exceptions import MisconfigurationException
from .callback import Callback


class WriteInterval(StrEnum):
    """When predictions are written."""

    BATCH = "batch"
    EPOCH = "epoch"
    BATCH_AND_EPOCH = "batch_and_epoch"

    @property
    def on_batch(self) -> bool:
        """Whether after every batch."""
        return self is not WriteInterval.EPOCH

    @property
    def on_epoch(self) -> bool:
        """Whether after the last batch."""
        return self is not WriteInterval.BATCH


class BasePredictionWriter(Callback):
    """Writes predictions: override `write_on_batch_end` or `write_on_epoch_end`, and pass an instance to the Trainer.

    A batch is that of all cores, and so are its indices.

    Args:
        write_interval: "batch", "epoch" or "batch_and_epoch". Writing after every batch waits for its prediction;
            `trainer.predict(..., return_predictions=False)` then keeps none of them.

    Raises:
        MisconfigurationException: it is none of these.
    """

    def __init__(self, write_interval: str = "batch") -> None:
        try:
            self.interval = WriteInterval(write_interval)
        except ValueError as error:
            raise MisconfigurationException(
                f"`write_interval` should be one of {[str(one) for one in WriteInterval]}. Received: {write_interval!r}."
            ) from error

    def write_on_batch_end(
        self,
        trainer: Any,
        pl_module: LightningModule,
        prediction: Any,
        batch_indices: Sequence[int] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        """Write one batch's prediction; override it. `batch_indices` says which samples of the dataset they are for."""
        raise NotImplementedError

    def write_on_epoch_end(
        self, trainer: Any, pl_module: LightningModule, predictions: Sequence[Any], batch_indices: Sequence[Any]
    ) -> None:
        """Write all predictions; override it. `batch_indices` has a list for every loader."""
        raise NotImplementedError

    def on_predict_batch_end(
        self, trainer: Any, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Write the batch, if batches are to be written."""
        if self.interval.on_batch:
            indices = trainer.predict_loop.current_batch_indices
            self.write_on_batch_end(trainer, pl_module, outputs, indices, batch, batch_idx, dataloader_idx)

    def on_predict_epoch_end(self, trainer: Any, pl_module: LightningModule) -> None:
        """Write everything, if everything is to be written at once."""
        if self.interval.on_epoch:
            loop = trainer.predict_loop
            self.write_on_epoch_end(trainer, pl_module, loop.predictions, loop.epoch_batch_indices)
