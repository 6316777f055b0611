"""Alias at the path where Lightning has it: `from systolic.tuner import Tuner`."""

from ..trainer import Tuner as Tuner
