"""What a checkpoint of the Trainer contains, and how it is restored."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from ..checkpoint import snapshot
from ..core import hyperparameters_of
from ..exceptions import MisconfigurationException


def save(trainer: Any, path: Any, weights_only: bool, storage_options: Any = None) -> None:
    """Write a checkpoint: one copy on the host, taken when the one before it is gone."""
    io = trainer.checkpoint_io
    io.wait()
    io.save_checkpoint(snapshot(_contents(trainer, weights_only), detached=io.writes_later), path, storage_options)
    if trainer.lightning_module._trainer is None:  # between runs nothing goes on meanwhile
        io.teardown()


def finish(trainer: Any) -> None:
    """Wait for what is written in the background; after an error of the run, an error of this is a warning."""
    try:
        trainer.checkpoint_io.teardown()
    except Exception as error:
        if trainer.state.status == "finished":
            raise
        warnings.warn(f"A checkpoint was not written: {type(error).__name__}: {error}", stacklevel=2)


def _contents(trainer: Any, weights_only: bool) -> dict[str, Any]:
    module = trainer.lightning_module
    if module is None:
        raise MisconfigurationException("There is nothing to save before fit, validate, test or predict was called.")
    from .. import __version__

    contents: dict[str, Any] = {
        "epoch": trainer._current_epoch,
        "global_step": trainer._global_step,
        "epochs_done": trainer._epochs_done,
        "batches_that_stepped": trainer._steps_dispatched,
        "systolic_version": __version__,
        "state_dict": module.state_dict(),
    }
    if not weights_only:
        contents["optimizer_states"] = [optimizer.state_dict() for optimizer in trainer.optimizers]
        contents["lr_schedulers"] = [config.scheduler.state_dict() for config in trainer.lr_scheduler_configs]
        contents["callbacks"] = {c.state_key: s for c in trainer.callbacks if (s := c.state_dict())}
        if trainer._placement is not None:
            contents["random_state"] = torch.from_numpy(trainer._placement.random_state().astype(np.int64))
        trainer._hooks.callbacks("on_save_checkpoint", contents)
    for owner in (module, trainer.datamodule):
        if owner is not None:
            contents |= hyperparameters_of(owner)
    module.on_save_checkpoint(contents)
    return contents


def load_weights(trainer: Any, path: Any) -> None:
    """Load a checkpoint's weights into the module, when a path is given."""
    if path is not None:
        checkpoint = trainer.checkpoint_io.load_checkpoint(_resolved(trainer, path))
        trainer.lightning_module.load_state_dict(checkpoint["state_dict"])


def restore(trainer: Any, path: Any) -> None:
    """Continue from a checkpoint: weights, optimizers, schedulers, counters, callbacks, random numbers on the devices."""
    checkpoint = trainer.checkpoint_io.load_checkpoint(_resolved(trainer, path))
    module = trainer.lightning_module
    trainer._hooks.callbacks("on_load_checkpoint", checkpoint)
    module.on_load_checkpoint(checkpoint)
    module.load_state_dict(checkpoint["state_dict"])
    for optimizer, state in zip(trainer.optimizers, checkpoint.get("optimizer_states", []), strict=False):
        optimizer.load_state_dict(state)
    for config, state in zip(trainer.lr_scheduler_configs, checkpoint.get("lr_schedulers", []), strict=False):
        config.scheduler.load_state_dict(state)
    states = checkpoint.get("callbacks", {})
    for callback in trainer.callbacks:
        if callback.state_key in states:
            callback.load_state_dict(states[callback.state_key])
    if trainer._placement is not None and "random_state" in checkpoint:
        trainer._placement.restore_random_state(checkpoint["random_state"].numpy())
    trainer._current_epoch = checkpoint.get("epochs_done", checkpoint["epoch"] + 1)
    trainer._global_step = checkpoint["global_step"]
    trainer._steps_dispatched = checkpoint.get("batches_that_stepped", checkpoint["global_step"])


def _resolved(trainer: Any, path: Any) -> Any:
    if path not in ("best", "last"):
        return path
    callback = trainer.checkpoint_callback
    found = None if callback is None else callback.best_model_path if path == "best" else callback.last_model_path
    if not found:
        raise MisconfigurationException(
            f'ckpt_path="{path}" needs a ModelCheckpoint callback that has saved a checkpoint. Give a path instead.'
        )
    return found
