"""Looking for learning rates and batch sizes: runs of a few steps that leave no trace."""

from ._tuner import Tuner as Tuner
from ._tuning import Tuning as Tuning
