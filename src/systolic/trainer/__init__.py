"""The Trainer, its runs and its loops."""

from ._interception import Intended as Intended
from ._interception import intercepting as intercepting
from ._stage import RunningStage as RunningStage
from ._stage import TrainerFn as TrainerFn
from ._trainer import Trainer as Trainer
from .inspection import plan as plan
from .inspection import report_of as report_of
from .tuning import Tuner as Tuner
