"""LightningDataModule: loaders and their preparation in one object."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Self

import torch

from ..checkpoint._location import MapLocation, PathLike
from . import _loading
from ._datasets import Datasets, described, loaders_of
from ._hparams import HyperparametersMixin


class LightningDataModule(HyperparametersMixin, _loading.Checkpointed):
    """Data for all stages. Override the loaders that are needed."""

    CHECKPOINT_HYPER_PARAMS_KEY = "datamodule_hyper_parameters"
    CHECKPOINT_HYPER_PARAMS_NAME = "datamodule_hparams_name"
    CHECKPOINT_HYPER_PARAMS_TYPE = "datamodule_hparams_type"

    prepare_data_per_node = True
    """Whether `prepare_data` runs once on each host; else once in all."""

    def __init__(self) -> None:
        super().__init__()
        self.trainer: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """State that is copied and pickled: everything but the Trainer."""
        return {**vars(self), "trainer": None}

    def __str__(self) -> str:
        """The loaders that there are by now, with the sizes of their datasets."""
        makers = {
            "Train": self.train_dataloader,
            "Validation": self.val_dataloader,
            "Test": self.test_dataloader,
            "Predict": self.predict_dataloader,
        }
        return described(makers)

    @property
    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    @classmethod
    def from_datasets(
        cls,
        train_dataset: Datasets | None = None,
        val_dataset: Datasets | None = None,
        test_dataset: Datasets | None = None,
        predict_dataset: Datasets | None = None,
        batch_size: int = 1,
        num_workers: int = 0,
        **datamodule_kwargs: Any,
    ) -> Self:
        """A data module with loaders for datasets.

        Args:
            train_dataset: a dataset, or a list or dict of datasets; training shuffles those that have a length.
            val_dataset: a dataset or a sequence of them, in their order; so for the others.
            test_dataset: the test data.
            predict_dataset: the data to predict for.
            batch_size: samples in a batch.
            num_workers: processes that load.
            **datamodule_kwargs: for `__init__`; batch_size and num_workers are given to it as well, if it takes them.

        Example:
            >>> import torch, systolic as L
            >>> data = torch.utils.data.TensorDataset(torch.zeros(6, 2))
            >>> len(L.LightningDataModule.from_datasets(train_dataset=data, batch_size=3).train_dataloader())
            2
        """
        taken = inspect.signature(cls.__init__).parameters.values()
        every = any(p.kind is p.VAR_KEYWORD for p in taken)
        own = {"batch_size": batch_size, "num_workers": num_workers}
        accepted = {name: value for name, value in own.items() if every or name in {p.name for p in taken}}
        found = cls(**{**accepted, **datamodule_kwargs})
        given = {"train": train_dataset, "val": val_dataset, "test": test_dataset, "predict": predict_dataset}
        for stage, datasets in given.items():
            if datasets is not None:
                options = {**own, "shuffle": stage == "train"}
                setattr(found, f"{stage}_dataloader", functools.partial(loaders_of, datasets, **options))
        return found

    def prepare_data(self) -> None:
        """Called before setup, for downloads: once on each host, with `prepare_data_per_node = False` once in all."""

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
        checkpoint_path: PathLike,
        map_location: MapLocation = None,
        hparams_file: PathLike | None = None,
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
        name = type(datamodule).__qualname__
        if name in checkpoint:
            datamodule.load_state_dict(checkpoint[name])
        return datamodule
