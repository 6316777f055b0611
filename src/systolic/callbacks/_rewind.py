"""Going back to a checkpoint in the middle of `fit`: how a callback asks for it, and which file it is."""

from collections.abc import Sequence
from typing import Protocol

from ._protocol import TrainerLike
from .callback import Callback
from .model_checkpoint import ModelCheckpoint

BatchPlace = tuple[int, int]
"""An epoch, from 0, and the number of a batch in it."""


class RewindingTrainerLike(TrainerLike, Protocol):
    """A further member of a Trainer, for callbacks that look for checkpoints."""

    @property
    def callbacks(self) -> Sequence[Callback]:
        """All callbacks."""
        ...


class Rewind(Exception):
    """Asks the training loop to go back; to be raised in `on_train_batch_end`.

    Everything is restored as by `ckpt_path`, within the same run and its programs. The hooks that were still to come for the
    batch, and what it logged, are dropped.

    Args:
        path: the checkpoint to go on from.
        left_out: batches that are read from now on, and not trained on.
        until: the first of these that training comes to: what it logs before was logged already.
    """

    def __init__(self, path: str, left_out: Sequence[BatchPlace], until: BatchPlace) -> None:
        super().__init__(f"to {path}, leaving out {list(left_out)}")
        self.path = path
        self.left_out = tuple(left_out)
        self.until = until


def keeps_whole_checkpoints(trainer: RewindingTrainerLike) -> bool:
    """Whether a ModelCheckpoint writes files that training can go on from."""
    return any(isinstance(c, ModelCheckpoint) and not c.save_weights_only for c in trainer.callbacks)


def newest_checkpoint(trainer: RewindingTrainerLike) -> str | None:
    """The newest file that a ModelCheckpoint of this run wrote whole, or else the one that the run began with."""
    written = [c.written for c in trainer.callbacks if isinstance(c, ModelCheckpoint) and c.written is not None]
    if written:
        return max(written)[1]
    return None if trainer.ckpt_path is None else str(trainer.ckpt_path)
