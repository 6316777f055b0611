"""LightningDataModule: loaders and their preparation in one object."""

from __future__ import annotations

from typing import Any, Self

import torch

from . import _loading
from ._hparams import HyperparametersMixin


class LightningDataModule(HyperparametersMixin, _loading.Checkpointed):
    """Data for all stages. Override the loaders that are needed."""

    CHECKPOINT_HYPER_PARAMS_KEY = "datamodule_hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "datamodule_hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "datamodule_hparams_type"

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Any = None

    def prepare_data(self) -> None:
        """Called once before setup, for downloads."""

    def setup(self, stage: str) -> None:
        """Called with "fit", "validate", "test" or "predict" before the loaders are asked for."""

    def teardown(self, stage: str) -> None:
        """Called when the stage has ended."""

    def train_dataloader(self) -> Any:
        """The training data."""
        return None

    def val_dataloader(self) -> Any:
        """The validation data."""
        return None

    def test_dataloader(self) -> Any:
        """The test data."""
        return None

    def predict_dataloader(self) -> Any:
        """The data to predict for."""
        return None

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch on the host; runs in the background."""
        return batch

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Take a batch of your own kind apart; runs in the background. `device` is "cpu": XLA copies what this returns."""
        return batch

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Change a batch on the devices; part of the compiled step."""
        return batch

    def on_exception(self, exception: BaseException) -> None:
        """Called when an exception ends the Trainer's work."""

    def state_dict(self) -> dict[str, Any]:
        """State to save in a checkpoint."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore `state_dict`."""

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: Any,
        map_location: Any = None,
        hparams_file: Any = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build a data module from a checkpoint: with its saved hyperparameters, overridden by `kwargs`, and its state.

        Args:
            checkpoint_path: the file or URL.
            map_location: where tensors go, as in `torch.load`; default: the CPU.
            hparams_file: a .yaml or .csv file whose values replace the saved hyperparameters.
            weights_only: False also reads objects that are no plain values, for files that you trust.
            **kwargs: arguments of `__init__` that come before the saved ones.
        """
        checkpoint = _loading.read(checkpoint_path, map_location, weights_only)
        datamodule = _loading.build(cls, checkpoint, hparams_file, kwargs)
        if cls.__qualname__ in checkpoint:
            datamodule.load_state_dict(checkpoint[cls.__qualname__])
        return datamodule
