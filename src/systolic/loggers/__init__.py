"""Loggers: where the values of `self.log` and the hyperparameters go."""

from ._protocol import LoggerProtocol, begin_experiments, finalize, require_logger
from .comet import CometLogger
from .csv_logs import CSVLogger
from .logger import DummyLogger, Logger
from .mlflow import MLFlowLogger
from .tensorboard import TensorBoardLogger
from .wandb import WandbLogger

__all__ = [
    "CSVLogger",
    "CometLogger",
    "DummyLogger",
    "Logger",
    "LoggerProtocol",
    "MLFlowLogger",
    "TensorBoardLogger",
    "WandbLogger",
    "begin_experiments",
    "finalize",
    "require_logger",
]
