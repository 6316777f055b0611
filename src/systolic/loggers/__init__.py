"""Loggers: where the values of `self.log` and the hyperparameters go."""

from ._protocol import LoggerProtocol, require_logger
from .csv_logs import CSVLogger
from .logger import DummyLogger, Logger
from .tensorboard import TensorBoardLogger

__all__ = ["CSVLogger", "DummyLogger", "Logger", "LoggerProtocol", "TensorBoardLogger", "require_logger"]
