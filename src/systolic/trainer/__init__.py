"""The Trainer and its loops."""

from ._interception import Intended as Intended
from ._interception import intercepting as intercepting
from ._trainer import Trainer as Trainer
from .tuner import Tuner as Tuner
