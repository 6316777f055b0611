"""Callbacks: code that runs at fixed points of `fit`, `validate`, `test` and `predict`."""

from systolic.callbacks.batch_size_finder import BatchSizeFinder
from systolic.callbacks.callback import Callback
from systolic.callbacks.checkpoint import Checkpoint
from systolic.callbacks.device_stats_monitor import DeviceStatsMonitor
from systolic.callbacks.early_stopping import EarlyStopping, EarlyStoppingReason
from systolic.callbacks.finetuning import BackboneFinetuning, BaseFinetuning
from systolic.callbacks.gradient_accumulation_scheduler import GradientAccumulationScheduler
from systolic.callbacks.lambda_function import LambdaCallback
from systolic.callbacks.lr_finder import LearningRateFinder
from systolic.callbacks.lr_monitor import LearningRateMonitor
from systolic.callbacks.model_checkpoint import ModelCheckpoint
from systolic.callbacks.model_summary import ModelSummary
from systolic.callbacks.on_exception_checkpoint import OnExceptionCheckpoint
from systolic.callbacks.prediction_writer import BasePredictionWriter
from systolic.callbacks.progress import ProgressBar, RichProgressBar, RichProgressBarTheme
from systolic.callbacks.rich_model_summary import RichModelSummary
from systolic.callbacks.throughput_monitor import ThroughputMonitor
from systolic.callbacks.timer import Timer

__all__ = [
    "BaseFinetuning",
    "BackboneFinetuning",
    "BasePredictionWriter",
    "OnExceptionCheckpoint",
    "GradientAccumulationScheduler",
    "BatchSizeFinder",
    "Callback",
    "Checkpoint",
    "DeviceStatsMonitor",
    "EarlyStopping",
    "EarlyStoppingReason",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelSummary",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "ThroughputMonitor",
    "Timer",
]
