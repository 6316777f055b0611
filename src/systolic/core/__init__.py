"""Base classes that users subclass: LightningModule, LightningDataModule."""

from ._datamodule import LightningDataModule as LightningDataModule
from ._hparams import settle as settle
from ._loading import hyperparameters_of as hyperparameters_of
from ._module import LightningModule as LightningModule
from ._ties import Ties as Ties
