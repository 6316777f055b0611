"""The Trainer and its loops."""

from ._trainer import Trainer as Trainer
