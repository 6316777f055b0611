"""Loggers: where the values of `self.log` and the hyperparameters go."""

from systolic.loggers._protocol import LoggerProtocol, require_logger
from systolic.loggers.csv_logs import CSVLogger
from systolic.loggers.logger import DummyLogger, Logger
from systolic.loggers.tensorboard import TensorBoardLogger

__all__ = ["CSVLogger", "DummyLogger", "Logger", "LoggerProtocol", "TensorBoardLogger", "require_logger"]
