"""Callbacks: code that runs at fixed points of `fit`, `validate`, `test` and `predict`."""

from .batch_size_finder import BatchSizeFinder
from .callback import Callback
from .checkpoint import Checkpoint
from .device_stats_monitor import DeviceStatsMonitor
from .early_stopping import EarlyStopping, EarlyStoppingReason
from .finetuning import BackboneFinetuning, BaseFinetuning
from .gradient_accumulation_scheduler import GradientAccumulationScheduler
from .lambda_function import LambdaCallback
from .lr_finder import LearningRateFinder
from .lr_monitor import LearningRateMonitor
from .model_checkpoint import ModelCheckpoint
from .model_summary import ModelSummary
from .on_exception_checkpoint import OnExceptionCheckpoint
from .prediction_writer import BasePredictionWriter
from .progress import ProgressBar, RichProgressBar, RichProgressBarTheme, TQDMProgressBar
from .pruning import ModelPruning
from .rich_model_summary import RichModelSummary
from .spike import SpikeDetection
from .stochastic_weight_avg import StochasticWeightAveraging
from .throughput_monitor import ThroughputMonitor
from .timer import Timer
from .weight_averaging import EMAWeightAveraging, WeightAveraging

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
    "EMAWeightAveraging",
    "EarlyStopping",
    "EarlyStoppingReason",
    "LambdaCallback",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelCheckpoint",
    "ModelPruning",
    "ModelSummary",
    "ProgressBar",
    "RichModelSummary",
    "RichProgressBar",
    "RichProgressBarTheme",
    "SpikeDetection",
    "StochasticWeightAveraging",
    "TQDMProgressBar",
    "ThroughputMonitor",
    "Timer",
    "WeightAveraging",
]
