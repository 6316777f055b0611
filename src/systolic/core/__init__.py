"""Base classes that users subclass: LightningModule, LightningDataModule."""

from ._datamodule import LightningDataModule as LightningDataModule
from ._export import exporting as exporting
from ._given import CLASS_PATH_KEY as CLASS_PATH_KEY
from ._given import INSTANTIATOR_KEY as INSTANTIATOR_KEY
from ._given import given_hyperparameters as given_hyperparameters
from ._hparams import settle as settle
from ._instantiation import instantiate_module as instantiate_module
from ._loading import hyperparameters_of as hyperparameters_of
from ._module import LightningModule as LightningModule
from ._ties import Ties as Ties
