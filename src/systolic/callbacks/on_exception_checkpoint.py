"""A checkpoint of the moment at which an error ended a run."""

import os
from typing import Any

from ._protocol import EndingTrainerLike, TrainerLike
from .checkpoint import Checkpoint


class OnExceptionCheckpoint(Checkpoint):
    """Saves a checkpoint when an exception, Ctrl-C included, ends the Trainer's work; a run that succeeds removes it.

    Args:
        dirpath: where to.
        filename: the file's name, without ".ckpt".

    Raises:
        ValueError: the name is empty.

    Example:
        >>> from systolic.callbacks import OnExceptionCheckpoint
        >>> OnExceptionCheckpoint("runs").ckpt_path
        'runs/on_exception.ckpt'
    """

    FILE_EXTENSION = ".ckpt"

    def __init__(self, dirpath: str | os.PathLike[str], filename: str = "on_exception") -> None:
        if not filename:
            raise ValueError("OnExceptionCheckpoint(filename) must not be empty. Leave it out for 'on_exception'.")
        self.dirpath = dirpath
        self.filename = filename

    @property
    def ckpt_path(self) -> str:
        """The file."""
        return os.path.join(self.dirpath, self.filename + self.FILE_EXTENSION)

    def on_exception(self, trainer: TrainerLike, *_: Any, **__: Any) -> None:
        """Save."""
        trainer.save_checkpoint(self.ckpt_path)

    def teardown(self, trainer: EndingTrainerLike, *_: Any, **__: Any) -> None:
        """Remove what an earlier run left; after an exception it stays."""
        if not trainer.interrupted:
            trainer.strategy.remove_checkpoint(self.ckpt_path)
