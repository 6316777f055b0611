"""Aliases at the path where Lightning has them: `from systolic.trainer.states import RunningStage, TrainerFn`."""

from ._stage import RunningStage as RunningStage
from ._stage import TrainerFn as TrainerFn
from ._stage import TrainerState as TrainerState
from ._stage import TrainerStatus as TrainerStatus
