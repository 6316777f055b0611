"""Choice of the checkpoint that a run starts from: Lightning's rules for `ckpt_path`, and for calls without a module."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from ..callbacks import Checkpoint, ModelCheckpoint, OnExceptionCheckpoint
from ..checkpoint import NoCheckpointError
from ..distributed import broadcast
from ..exceptions import MisconfigurationException
from ._requeue import newest_checkpoint

if TYPE_CHECKING:
    from ._trainer import Trainer


_ALSO_THERE = "There is also an on-exception checkpoint available, which only fit takes by default. "


def choose(trainer: Trainer, method: str, ckpt_path: Any, module_given: bool) -> Any:
    """The path that a call loads from, or None.

    Args:
        trainer: the trainer that was called.
        method: "fit", "validate", "test" or "predict".
        ckpt_path: what the call was given: a path, "best", "last", "hpc" or None.
        module_given: whether the call was given a module; without one, None means the best weights of the last fit.

    Raises:
        NoCheckpointError: the best checkpoint, or that of a job of SLURM's, is asked for, and there is none.
    """
    if ckpt_path == "hpc" or (ckpt_path is None and trainer.config.slurm is not None):
        found = newest_checkpoint(trainer.checkpoint_io, trainer.default_root_dir)
        if found is not None:
            return found
        if ckpt_path == "hpc":
            raise NoCheckpointError(
                f'trainer.{method}(ckpt_path="hpc"): there is no hpc_ckpt_1.ckpt (2, 3, ...) in {trainer.default_root_dir}, '
                "which a job of SLURM's writes before it goes back into the queue. Leave `ckpt_path` out: in such a job it is "
                "taken where it is there."
            )
    left = broadcast(_left_by_exceptions(trainer))
    if ckpt_path is None and method == "fit" and left:
        warnings.warn(
            "trainer.fit() was called without `ckpt_path`. The last model of the previous `fit` call will be used: an "
            f"exception ended it, and OnExceptionCheckpoint saved {', '.join(left)}. Remove the file to begin anew.",
            stacklevel=4,
        )
        ckpt_path = "last"
    if ckpt_path is None and module_given:
        return None
    if ckpt_path is not None and not (isinstance(ckpt_path, os.PathLike) or (isinstance(ckpt_path, str) and ckpt_path)):
        raise MisconfigurationException(
            f"trainer.{method}: `ckpt_path` expects the path or the URL of a checkpoint, 'best', 'last', 'hpc' or None. "
            f"Received: {ckpt_path!r} of type {type(ckpt_path).__name__}."
        )
    if ckpt_path is None:
        warnings.warn(
            f"trainer.{method}() was called without a module and without `ckpt_path`. The best model of the previous `fit` "
            f"call will be used. {_ALSO_THERE if left else ''}To say which weights you mean, pass the module, "
            "ckpt_path='best' or ckpt_path='last'.",
            stacklevel=4,
        )
        ckpt_path = "best"
    if ckpt_path == "best":
        return _best(trainer, method)
    if ckpt_path == "last":
        return _last(trainer, method)
    return ckpt_path


def _left_by_exceptions(trainer: Trainer) -> list[str]:
    """Checkpoints that the Trainer's callbacks saved when an exception ended a run."""
    paths = [callback.ckpt_path for callback in trainer.callbacks if isinstance(callback, OnExceptionCheckpoint)]
    io = trainer.checkpoint_io
    return [path for path in paths if os.path.basename(path) in io.names_in(os.path.dirname(path) or ".")]


def _best(trainer: Trainer, method: str) -> str:
    callbacks = [callback for callback in trainer.callbacks if isinstance(callback, Checkpoint)]
    asked = f'trainer.{method}(ckpt_path="best")'
    if trainer.fast_dev_run:
        raise NoCheckpointError(
            f"{asked}: fast_dev_run={trainer.fast_dev_run} saves no checkpoints. Pass the module, or the path of a checkpoint."
        )
    if not callbacks:
        raise NoCheckpointError(
            f"{asked}: `ModelCheckpoint` is not configured. Pass the module to use its weights as they are, "
            "the path of a checkpoint, or Trainer(callbacks=[ModelCheckpoint(...)])."
        )
    if len(callbacks) > 1:
        warnings.warn(
            f"{asked}: the Trainer has {len(callbacks)} ModelCheckpoint callbacks. The best checkpoint path from first "
            "checkpoint callback is taken.",
            stacklevel=5,
        )
    path = getattr(callbacks[0], "best_model_path", "")
    if not path:
        raise NoCheckpointError(
            f"{asked}: {type(callbacks[0]).__name__} is not configured to save the best model, or has saved none yet. "
            "Call trainer.fit first with save_top_k other than 0, pass the module, or the path of a checkpoint."
        )
    return path


def _last(trainer: Trainer, method: str) -> str | None:
    # one process chooses: what the others see of the directory may be older
    return broadcast(_last_here(trainer, method))


def _last_here(trainer: Trainer, method: str) -> str | None:
    found = set(_left_by_exceptions(trainer))
    for callback in trainer.callbacks:
        if isinstance(callback, ModelCheckpoint):
            found |= callback.find_last_checkpoints(trainer)
    if not found:
        # no error, so that a script may say so before its first run has saved anything
        warnings.warn(
            f'trainer.{method}(ckpt_path="last"): there is no last checkpoint. No checkpoint will be loaded. '
            "ModelCheckpoint(save_last=True) keeps one.",
            stacklevel=6,
        )
        return None
    return _newest_whole(trainer, sorted(found))


def _newest_whole(trainer: Trainer, found: list[str]) -> str:
    """The newest of the last checkpoints that is not damaged; after them the others beside them, the newest first."""
    io = trainer.checkpoint_io
    directories = sorted({os.path.dirname(path) for path in found})
    beside = [os.path.join(d, name) for d in directories for name in io.names_in(d) if name.endswith(".ckpt")]
    others = [path for path in beside if path not in found]
    candidates = [path for group in (found, others) for path in sorted(group, key=io.modified, reverse=True)]
    whole = next((path for path in candidates if io.is_whole(path)), None)
    if whole is None:
        return candidates[0]  # reading it says what is wrong
    damaged = candidates[: candidates.index(whole)]
    if damaged:
        warnings.warn(
            f'ckpt_path="last": {", ".join(damaged)} cannot be read (cut off, or changed since it was written). Training goes '
            f"on from the one before, {whole}. Delete the damaged file, or look at the disk that it is on.",
            stacklevel=7,
        )
    return whole
